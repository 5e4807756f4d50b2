"""The engine in real time: threads, schedule, HTTP, metrics. Concurrency lives here alone."""
