"""Parts of scripts/plan-check."""
