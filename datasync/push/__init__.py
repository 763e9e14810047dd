"""Push: scan -> detect -> chunk -> seal -> pack -> store -> commit, one module a step; only `pipeline` joins them."""
