"""What engine.yaml says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.duration import Duration
from engine.model.labels import Matchers
from engine.model.playbook import Mode
from engine.model.route import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuth:
    """A user and the file that holds the password."""

    username: str
    password_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files for TLS, as Prometheus' `tls_config` names them."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """Where PromQL is answered. Thanos, Mimir and VictoriaMetrics speak the same API."""

    url: str = "http://localhost:9090"
    timeout: Duration = Duration(seconds=20)  # for a whole answer, not between two bytes
    max_samples: int = 50_000  # a query that would bring more is refused with the way out
    headers: Mapping[str, str] = field(default_factory=dict)  # such as X-Scope-OrgID
    bearer_token_file: str | None = None
    basic_auth: BasicAuth | None = None
    tls_config: Tls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWrite:
    """One receiver of Prometheus' remote write, which is given the series that the rules make."""

    url: str  # whole, such as http://prometheus:9090/api/v1/write
    timeout: Duration = Duration(seconds=10)  # for a whole answer
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_token_file: str | None = None
    basic_auth: BasicAuth | None = None
    tls_config: Tls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """What is measured of a Ray cluster that Prometheus cannot see, and how much that may cost."""

    enabled: bool = True
    interval: Duration = Duration(seconds=15)
    timeout: Duration = Duration(seconds=4)  # for each answer; a part that hangs counts as so long
    owners_interval: Duration = Duration(minutes=1)  # of asking for all objects; 0: never
    max_actors: int = 50  # the busiest, and as many of the largest; twice as many with those that were lately

    def __post_init__(self) -> None:
        if not self.interval or not self.timeout:
            raise ValueError("interval and timeout must be longer than 0")
        if self.max_actors < 1:
            raise ValueError("max_actors must be 1 or more; to measure no cluster, set enabled: false")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """One Ray cluster; the first whose matchers fit an alert's labels is the alert's.

    `name` and `address` are templates.
    """

    name: str
    address: str
    matchers: Matchers = field(default=Matchers())
    token_file: str | None = None
    timeout: Duration = Duration(seconds=10)
    probe: ProbeSettings = ProbeSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """The Ray clusters that may be asked and acted upon; `version` is the Ray that rules are checked against."""

    clusters: tuple[RayCluster, ...] = ()
    version: str = ""  # empty: the newest that the metric contract knows


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Where state is kept: an SQLAlchemy URL, or what of it fits SQLite or PostgreSQL."""

    url: str = "sqlite:///./engine.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationSettings:
    """The mode that no playbook can exceed."""

    mode: Mode = Mode.DRY_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAlerts:
    """When the engine raises alerts about its own rules; 0 never."""

    rule_failing_for: Duration = Duration(minutes=5)
    rule_no_data_for: Duration = Duration(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """engine.yaml, whole."""

    prometheus: PrometheusSettings = PrometheusSettings()
    remote_write: tuple[RemoteWrite, ...] = ()
    ray: RaySettings = RaySettings()
    state: StateSettings = StateSettings()
    evaluation_interval: Duration = Duration(minutes=1)
    external_url: str = ""
    external_labels: Mapping[str, str] = field(default_factory=dict)
    rule_files: tuple[str, ...] = ()
    playbook_files: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    evidence_dir: str | None = None  # charts are also written here when set
    remediation: RemediationSettings = RemediationSettings()
    engine_alerts: EngineAlerts = EngineAlerts()
    routing: Routing = field(
        metadata={"key": None}
    )  # decoded from route, receivers, inhibit_rules, time_intervals
    file: str = field(default="", metadata={"key": None})
