"""Pull and warm: plan -> fetch -> open -> place -> publish, one module a step; only `pipeline` joins them."""
