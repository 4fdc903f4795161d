"""`lakelog cluster`: describes brokers, health and feature levels; changes levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.catalog import ExitCode
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import confirm
from lakelog.cli.options import CommandSession, Consent, Output, open_admin
from lakelog.cli.partition_health import examine, health_document
from lakelog.cli.render import Document, Listing, note, show

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.admin.brokers import ClusterDescription, Feature
    from lakelog.client.view import Topic


def feature_listing(features: Iterable[Feature]) -> Listing:
    """Return one row per feature; lowest and highest are levels that all brokers support."""
    rows = [
        {
            "feature": feature.name,
            "level": feature.level,
            "lowest": feature.lowest if feature.supported else None,
            "highest": feature.highest if feature.supported else None,
            "note": _note(feature),
        }
        for feature in features
    ]
    return Listing(rows)


def _note(feature: Feature) -> str:
    if feature.lacking:
        brokers = ", ".join(map(str, feature.lacking))
        return f"unknown to broker {brokers}"
    highs = {node_id: high for node_id, (_, high) in feature.supported.items()}
    older = [str(node_id) for node_id, high in highs.items() if high < max(highs.values())]
    if older:
        return f"broker {', '.join(older)} has an older version"
    return "can be upgraded" if feature.level < feature.highest else ""


def parse_levels(
    texts: Sequence[str] | None, features: Mapping[str, Feature], *, upgrade: bool
) -> dict[str, int]:
    """Return the wanted levels by feature.

    `FEATURE` alone, in an upgrade, is the highest level that all brokers support; `all` upgrades
    every feature. Raises `CliError`.
    """
    targets: dict[str, int] = {}
    for text in texts or ():
        name, separator, level = text.partition("=")
        if upgrade and name == "all" and not separator:
            news = {
                feature.name: feature.highest for feature in features.values() if feature.supported
            }
            targets |= {name: high for name, high in news.items() if high > features[name].level}
            continue
        if name not in features:
            names = ", ".join(sorted(features))
            raise CliError("LL0902", f"{name!r} is no feature of this cluster", f"one of {names}")
        if upgrade and not separator:
            targets[name] = features[name].highest
        else:
            targets[name] = _level(text, level)
    return targets


def _level(text: str, level: str) -> int:
    if not level.isdecimal() or int(level) > 32_767:
        raise CliError("LL0902", f"{text!r} is not FEATURE=LEVEL", "a level is a number from 0")
    return int(level)


def changes(features: Mapping[str, Feature], targets: Mapping[str, int]) -> list[str]:
    """Return a text for each feature whose level would change."""
    return [
        f"{name} from {features[name].level} to {level}"
        for name, level in targets.items()
        if features[name].level != level
    ]


app = Noun("cluster")

_STORE_KEY = "lakelog.metadata.store"
_MIN_ISR = "min.insync.replicas"


@app.command()
def info(*, session: CommandSession, output: Output) -> None:
    """Show the cluster: id, controller, metadata store, numbers, features."""
    with open_admin(session) as admin:
        cluster, topics = _cluster(admin)
        document = info_document(cluster, topics, _metadata_store(admin), admin.features.levels())
    show(document, output.format)


@app.command()
def brokers(*, session: CommandSession, output: Output) -> None:
    """List the brokers, with the numbers of partitions that they lead and hold.

    A broker is online; fenced, because it stopped, died or is starting; or unregistered, although
    replicas are assigned to it. Kafka before 4.0 does not list fenced brokers: they appear as
    unregistered.
    """
    with open_admin(session) as admin:
        listing = broker_listing(*_cluster(admin))
    show(listing, output.format)


@app.command()
def health(*, session: CommandSession, output: Output) -> int:
    """Show partitions and brokers that need attention; exit with 1 if there are any.

    Each online broker is asked whether it can write to its data folder, and to all logs in it.

    Partitions are offline (no leader), under-min-isr (fewer replicas in sync than
    min.insync.replicas, so that acks=all fails), or under-replicated (a replica is not in sync).
    Brokers are fenced or unregistered.
    """
    with open_admin(session) as admin:
        document = health_of(admin)
    show(document, output.format)
    return ExitCode.OK if document.data["is_healthy"] else ExitCode.FAILURE


@app.command(broker_id="Id of the broker.")
def unregister(broker_id: int, *, session: CommandSession, consent: Consent) -> None:
    """Remove the registration of a stopped broker that will not return.

    Its replicas stay assigned to it and are offline. A broker with this id can join again.
    """
    confirm(f"unregister broker {broker_id}", yes=consent.yes)
    with open_admin(session) as admin:
        try:
            admin.brokers.unregister(broker_id)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise
            raise CliError("LL0308", error.message, "stop the broker first") from error
    note(f"Unregistered broker {broker_id}", quiet=session.quiet)


@app.command(
    "features",
    upgrade=Argument(
        "FEATURE=LEVEL to raise to; FEATURE alone is the highest level that all brokers "
        'support, and "all" every feature. May be repeated.',
        metavar="FEATURE=LEVEL",
    ),
    downgrade=Argument("FEATURE=LEVEL to lower to. May be repeated.", metavar="FEATURE=LEVEL"),
    dry_run="Only check whether the brokers would accept the change.",
    unsafe="Lower a level even if metadata is lost. Brokers of lakelog refuse this.",
)
def feature_command(
    *,
    upgrade: list[str] | None = None,
    downgrade: list[str] | None = None,
    dry_run: bool = False,
    unsafe: bool = False,
    session: CommandSession,
    output: Output,
    consent: Consent,
) -> None:
    """Show the feature levels of the cluster, or change them.

    A level is finalized for all brokers, each of which must support it. Upgrade all brokers before
    you raise a level: afterwards an older version of lakelog cannot join the cluster.
    """
    with open_admin(session) as admin:
        features = admin.features.describe()
        if not upgrade and not downgrade:
            show(feature_listing(features), output.format)
            return
        by_name = {feature.name: feature for feature in features}
        up = parse_levels(upgrade, by_name, upgrade=True)
        down = parse_levels(downgrade, by_name, upgrade=False)
        if twice := sorted(up.keys() & down.keys()):
            raise CliError("LL0902", f"{twice[0]} cannot be both upgraded and downgraded")
        planned = changes(by_name, up | down)
        admin.features.update(up, down, is_unsafe=unsafe, validate_only=True)
        if dry_run or not planned:
            text = f"Would change {', '.join(planned)}" if planned else "No level changes"
            note(text, quiet=session.quiet)
            return
        confirm(f"change {', '.join(planned)}", yes=consent.yes)
        admin.features.update(up, down, is_unsafe=unsafe)
    note(f"Changed {', '.join(planned)}", quiet=session.quiet)


def health_of(admin: Admin) -> Document:
    """Ask the brokers for the health of the cluster. Raises `KafkaError` and `OSError`."""
    from lakelog.client.admin import ResourceType

    cluster, topics = _cluster(admin)
    names = [topic.name for topic in topics]
    values = admin.configs.values(ResourceType.TOPIC, names, _MIN_ISR)
    problems = _folder_problems(admin, cluster)
    minima = {name: int(value) for name, value in values.items() if value is not None}
    return health_document(examine(topics, minima), _states(cluster, topics), problems)


def _cluster(admin: Admin) -> tuple[ClusterDescription, list[Topic]]:
    return admin.brokers.describe(), admin.topics.list(internal=True)


def _folder_problems(admin: Admin, cluster: ClusterDescription) -> dict[int, str]:
    """Return why online brokers cannot write, or do not answer, by id."""
    problems = {}
    for broker in cluster.brokers:
        if not broker.is_fenced:
            try:
                folders = admin.log_dirs_of(broker.node_id, with_partitions=False)
                folder_problems = [folder.problem for folder in folders]
            except (KafkaError, OSError) as error:
                folder_problems = [f"no answer: {error}"]
            problems[broker.node_id] = "; ".join(filter(None, folder_problems))
    return {node_id: problem for node_id, problem in problems.items() if problem}


def _metadata_store(admin: Admin) -> str | None:
    """Return kind and place of the metadata store; None for a broker of another project."""
    from lakelog.client.admin import ResourceType

    node = str(next(iter(admin.describe_cluster().brokers)))
    entry = admin.configs.describe(ResourceType.BROKER, node, keys=[_STORE_KEY]).get(_STORE_KEY)
    return None if entry is None else entry.value or "data folder"


def info_document(
    cluster: ClusterDescription,
    topics: Sequence[Topic],
    metadata_store: str | None,
    features: Mapping[str, int],
) -> Document:
    """Return the description of the cluster. `features` are levels by name."""
    addresses = _addresses(cluster)
    has_controller = cluster.controller_id in addresses
    facts = {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id if has_controller else None,
        "controller_address": addresses.get(cluster.controller_id),
        "metadata_store": metadata_store,
        "brokers": len(cluster.brokers),
        "fenced_brokers": sum(broker.is_fenced for broker in cluster.brokers),
        "topics": sum(not topic.is_internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
    }
    shown = {**facts, "features": [f"{name}={level}" for name, level in features.items()]}
    return Document({**facts, "features": dict(features)}, shown)


def broker_listing(cluster: ClusterDescription, topics: Sequence[Topic]) -> Listing:
    """Return one row per registered broker, and per other broker that replicas are assigned to."""
    partitions = [row for topic in topics for row in topic.partitions]
    leaders = Counter(row.leader for row in partitions)
    replicas = Counter(node_id for row in partitions for node_id in row.replicas)
    addresses = _addresses(cluster)
    racks = {broker.node_id: broker.rack for broker in cluster.brokers}
    rows = [
        {
            "id": node_id,
            "address": addresses.get(node_id),
            "rack": racks.get(node_id),
            "state": state,
            "is_controller": node_id == cluster.controller_id,
            "leaders": leaders[node_id],
            "replicas": replicas[node_id],
        }
        for node_id, state in _states(cluster, topics).items()
    ]
    return Listing(rows)


def _states(cluster: ClusterDescription, topics: Sequence[Topic]) -> dict[int, str]:
    """Return the state of each broker, by id in ascending order."""
    assigned = {node_id for topic in topics for row in topic.partitions for node_id in row.replicas}
    states = dict.fromkeys(assigned, "unregistered") | {
        broker.node_id: "fenced" if broker.is_fenced else "online" for broker in cluster.brokers
    }
    return dict(sorted(states.items()))


def _addresses(cluster: ClusterDescription) -> dict[int, str]:
    from lakelog.client.view import shown

    return {broker.node_id: shown((broker.host, broker.port)) for broker in cluster.brokers}
