"""What several tests of the client need."""

from __future__ import annotations

from measure.conftest import certificate as certificate
