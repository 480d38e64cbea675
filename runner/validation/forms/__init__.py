"""Check features of pipelines, rings and links in small cases with a closed form."""
