"""Parts of scripts/manual, which writes the manual pages and the shells' completions from the table of options."""
