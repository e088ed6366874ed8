"""WACO's search strategies compared (Figure 5-8): the searches, the steps that run them, a page."""
