"""Renders HTML pages from templates, and SVG pictures."""
