// For browsers that know no modules, and so none of the other scripts.
document.getElementById("trouble").textContent =
  "This browser is too old for what computes the answers. The answer shown is right for what it says; for others use a newer " +
  "browser, or the command line: pip install inference-bench.";
document.getElementById("trouble").hidden = false;
document.getElementById("asleep").hidden = true;
