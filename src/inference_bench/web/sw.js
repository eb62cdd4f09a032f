// Keeps the page for when there is no network: the document is fetched anew where that is possible, everything else never
// changes under its address.
const OWN = `inference-bench ${self.registration.scope} `;
const CACHE = OWN + "VERSION";
const FILES = ["FILES"];

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(FILES))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) =>
        Promise.all(names.filter((name) => name.startsWith(OWN) && name !== CACHE).map((name) => caches.delete(name))),
      )
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const kept = () => caches.match(event.request, { ignoreSearch: true });
  if (event.request.mode === "navigate") {
    event.respondWith(fetch(event.request).catch(async () => (await kept()) ?? (await caches.match("./")) ?? Response.error()));
    return;
  }
  event.respondWith(kept().then((found) => found ?? fetch(event.request)));
});
