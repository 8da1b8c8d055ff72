"""Parts of the scripts that check the lessons and build the book."""
