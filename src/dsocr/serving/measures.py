"""What a server counts, as Prometheus reads it."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dsocr.inference.transcriber import Prediction

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Measures:
    """Counters of one server; nothing is shared between two in one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "dsocr_requests", "Requests answered, by path and status.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "dsocr_request_seconds", "From a request's first byte to its answer.", ["path"], registry=registry
        )
        self._refused = Counter("dsocr_refusals", "Requests that were not served.", ["reason"], registry=registry)
        self._waiting = Gauge("dsocr_waiting_images", "Images that wait to be read.", registry=registry)
        self._batches = Histogram(
            "dsocr_batch_images", "Images read together.", registry=registry, buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        self._reading = Histogram("dsocr_batch_seconds", "Time to read a batch.", registry=registry)
        self._images = Counter("dsocr_images", "Images read.", registry=registry)
        self._tokens = Counter("dsocr_tokens", "Tokens written.", registry=registry)
        self._doubtful = Counter(
            "dsocr_doubtful_images", "Images whose text is to be looked at.", ["kind"], registry=registry
        )

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Ask for the images that wait whenever somebody looks."""
        self._waiting.set_function(count)

    def was_answered(self, path: str, status: int, seconds: float) -> None:
        """A request has its answer."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def was_refused(self, reason: str) -> None:
        """A request was not served, for a reason in a word."""
        self._refused.labels(reason).inc()

    def batch_was_read(self, images: int, seconds: float) -> None:
        """So many images were read together."""
        self._batches.observe(images)
        self._reading.observe(seconds)

    def was_read(self, prediction: Prediction) -> None:
        """An image was read."""
        self._images.inc()
        self._tokens.inc(prediction.tokens)
        for flag in prediction.flags:
            self._doubtful.labels(flag).inc()

    def as_text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)
