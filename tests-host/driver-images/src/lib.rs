//! Nothing: this package has the worker of `ndkctl run`, and the tests of the drivers, in `tests-host/tests`, for Windows. There they load images of the drivers instead of
//! being linked with their code. See `docs/simulated-kernel.md`.
