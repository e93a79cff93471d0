"""The browser test of the page of `sunder lab serve`: scripts/page-test."""
