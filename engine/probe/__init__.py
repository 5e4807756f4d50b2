"""What Prometheus cannot see of a Ray cluster, measured over Ray's HTTP APIs and exported for it to scrape."""
