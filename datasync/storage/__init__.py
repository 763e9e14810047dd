"""Object stores: one small synchronous protocol, a driver per kind of store, decorators over the same protocol."""
