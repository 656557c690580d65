"""The commands of the engine: names and arguments, shared by socket, console and CLI.

scale         {name, mode?, replicas?, delta?, idle_s?}   a model's run mode or count
class         {name, class}            owner {name, owner|null}
resources     {name, profile?, min_memory_gb?, cpu_cores?}
add           {toml}                   one [[models]] table, as in config.toml
edit          {name, toml}             remove {name}
restart       {replica | model}        stop   {replica}   a model's replicas go one by one
node.trust    {name, fingerprint?}     node.cordon / node.uncordon / node.drain {name}
node.takeover {name}                   from another controller, which stops acting there
node.provision {name, engine?}         node.probe {name}
serve.plan    {source, fields?}        a serve plan and its form, with the fields typed so far
mirror.pull   {source, model?, version?}     mirror.cancel {model, version}
mirror.rm     {model, version}         mirror.verify {model?, version?}
mirror.clean  {dry_run: bool}
keys.add      {name, owner?, models?, class?, limits?, expires_s?}   its answer alone has the secret
keys.list     {}                       keys.revoke {name}
reload        {}                       plan {}            explain {name}
preview       {commands: [{name, args}, …]}   what they would start and stop together; of restart,
              stop, node.cordon|uncordon|drain, scale, resources, class, add, edit, remove
shutdown      {stop_replicas: bool, stop_gateway: bool}
handover      {}                       the console's engine gives way to a daemon
"""

from __future__ import annotations

NAMES = (
    "scale", "class", "owner", "resources", "add", "edit", "remove", "restart", "stop",
    "node.trust", "node.takeover", "node.cordon", "node.uncordon", "node.drain", "node.provision",
    "node.probe",
    "serve.plan", "mirror.pull", "mirror.cancel", "mirror.rm", "mirror.verify", "mirror.clean",
    "keys.add", "keys.list", "keys.revoke",
    "reload", "plan", "preview", "explain", "shutdown", "handover",
)  # fmt: skip

DANGEROUS = frozenset(NAMES) - {"plan", "preview", "explain", "serve.plan", "keys.list"}
"""Those that change something: refused in read-only mode."""
