"""The action table: every key, command and palette entry of the console."""

from __future__ import annotations

from llmgw_tui.actions import Action, Kind, Option, Scope, Values
from llmgw_tui.mirror_actions import MIRROR
from llmgw_tui.serve_actions import SERVING

VIEWS = ("overview", "nodes", "replicas", "models", "events", "logs", "mirror")
"""In the order of their number keys, from 1."""

_TABLES = (Scope.NODES, Scope.REPLICAS, Scope.MODELS, Scope.MIRROR)
_SCALED = (Scope.REPLICAS, Scope.MODELS)


def _view(name: str, key: str, title: str, aliases: tuple[str, ...], sentence: str) -> Action:
    return Action(
        id=f"view-{name}", title=title, keys=(key,), scopes=(Scope.ANY,), words=(name, *aliases),
        help=sentence,
    )  # fmt: skip


_GO = (
    _view("overview", "1", "Overview", ("home", "o"), "Nodes, replicas, numbers, events at once."),
    _view("nodes", "2", "Nodes", ("no",), "The machines."),
    _view("replicas", "3", "Replicas", ("re", "ps"), "The running copies of models."),
    _view("models", "4", "Models", ("mo", "catalog"), "The catalog."),
    _view("events", "5", "Events", ("ev",), "What happened, who did it and why."),
    Action(
        id="view-logs", title="Logs", keys=("6",), scopes=(Scope.ANY,), words=("log",),
        help="The log of the replica that was looked at last.",
    ),
    _view("mirror", "7", "Mirror", ("mirror list", "weights"), "The weights it holds and pulls."),
)  # fmt: skip

_ANYWHERE = (
    Action(
        id="command", title="command", keys=("colon",), scopes=(Scope.ANY,), shown=True,
        help="Type a command, as after `llmgw run`; tab completes.",
    ),
    Action(
        id="filter", title="filter", keys=("slash",), scopes=(Scope.ANY,), shown=True,
        help="Show only rows or lines that match: `text`, `!text`, `column:value`; esc clears.",
    ),
    Action(
        id="help", title="help", keys=("question_mark", "f1"), scopes=(Scope.ANY,), shown=True,
        words=("help", "keys"), help="The keys that work here, and all commands.",
    ),
    Action(
        id="palette", title="palette", keys=("ctrl+p",), scopes=(Scope.ANY,),
        help="Find anything that can be done by a part of its name.",
    ),
    Action(
        id="back", title="back", keys=("escape",), scopes=(Scope.ANY,),
        help="Close what is on top, or clear marks and filter.",
    ),
    Action(
        id="last-view", title="last view", keys=("backspace",), scopes=(Scope.ANY,),
        words=("last",), help="Go to the view before this one.",
    ),
    Action(
        id="pause", title="pause", keys=("p",), scopes=(Scope.ANY,),
        help="Freeze the screen; the engine goes on. Again to go on.",
    ),
    Action(
        id="refresh", title="refresh", keys=("ctrl+r",), scopes=(Scope.ANY,),
        help="Ask the engine for its newest state and paint everything again.",
    ),
    Action(
        id="maximize", title="full pane", keys=("f",), scopes=(Scope.ANY,), words=("full",),
        help="The focused pane alone on the screen; esc brings the others back.",
    ),
    Action(
        id="header", title="header", keys=("ctrl+e",), scopes=(Scope.ANY,),
        help="Show or hide the top line.",
    ),
    Action(
        id="theme", title="theme", scopes=(Scope.ANY,), options=(Option("", "theme"),),
        help="Change the colours: `:theme NAME`, or pick one with a live preview. "
             "`:theme reload` reads the files again.",
    ),
    Action(
        id="history", title="what was done", keys=("H",), scopes=(Scope.ANY,),
        words=("history", "done"),
        help="The commands of this session, as `llmgw run` would spell them, and their results.",
    ),
    Action(
        id="plan", title="what the controller would do", scopes=(Scope.ANY,), command="plan",
        help="Show what the controller would do now.",
    ),
    Action(
        id="reload", title="reload configuration", scopes=(Scope.ANY,), command="reload",
        dangerous=True, help="Read the configuration again and apply what changed.",
    ),
    Action(
        id="leave", title="back or quit", keys=("q",), scopes=(Scope.ANY,), words=("q",),
        help="Back; on a view, quit.",
    ),
    Action(
        id="quit", title="quit", keys=("ctrl+q",), scopes=(Scope.ANY,), words=("quit", "exit"),
        help="Leave the console; where it runs the controller, it asks what becomes of serving.",
    ),
)  # fmt: skip

_LISTS = (
    Action(
        id="open", title="open", keys=("enter",), scopes=_TABLES, shown=True,
        help="The card of the row, live: everything known about it.",
    ),
    Action(
        id="describe", title="describe", keys=("d",), scopes=_TABLES,
        help="The same as enter.",
    ),
    Action(
        id="copy-id", title="copy name", keys=("c",), scopes=_TABLES, words=("copy",),
        help="Send the names of the row, or of all marked ones, to the terminal's clipboard.",
    ),
    Action(
        id="copy-row", title="copy row", keys=("y",), scopes=_TABLES, words=("yank",),
        help="Send the whole row as JSON to the terminal's clipboard.",
    ),
    Action(
        id="save", title="save list", keys=("ctrl+s",), scopes=(*_TABLES, Scope.EVENTS, Scope.LOGS),
        words=("save",), help="Write what is shown to a file in the working directory: a list as "
        "JSON, a log as text.",
    ),
    Action(
        id="faults", title="faults", keys=("z",), scopes=_TABLES, shown=True,
        help="Only rows that need attention. Again for all.",
    ),
    Action(
        id="wide", title="wide", keys=("w",), scopes=_TABLES,
        help="More columns, as far as they fit. Again for fewer.",
    ),
)  # fmt: skip

_SCALE_OPTIONS = (
    Option("--mode", "mode", Values.WORD, ("always", "ondemand", "stopped")),
    Option("--replicas", "replicas", Values.WHOLE),
    Option("--idle", "idle_s", Values.DURATION),
    Option("--delta", "delta", Values.WHOLE),
)

_SCALING = (
    Action(
        id="more", title="more", keys=("plus",), scopes=_SCALED, target=Kind.MODEL,
        command="scale", fixed={"delta": 1}, dangerous=True, bulk=True, shown=True,
        help="One replica more of the model.",
    ),
    Action(
        id="fewer", title="fewer", keys=("minus",), scopes=_SCALED, target=Kind.MODEL,
        command="scale", fixed={"delta": -1}, dangerous=True, bulk=True, shown=True,
        words=("fewer", "less"), help="One replica fewer of the model.",
    ),
    Action(
        id="scale", title="scale", keys=("s", "equals_sign"), scopes=_SCALED, target=Kind.MODEL,
        command="scale", options=_SCALE_OPTIONS, dangerous=True, shown=True,
        help="How a model runs: always, on demand or stopped, and in how many replicas.",
    ),
)  # fmt: skip

_REPLICAS = (
    Action(
        id="logs", title="logs", keys=("l",), scopes=(Scope.REPLICAS, Scope.MODELS),
        target=Kind.REPLICA, words=("logs",), shown=True,
        help="The replica's log, as it is written.",
    ),
    Action(
        id="previous-logs", title="previous log", keys=("P",), scopes=(Scope.REPLICAS,),
        target=Kind.REPLICA, words=("previous",), help="The log of the replica's run before this.",
    ),
    Action(
        id="show-node", title="its node", keys=("o",), scopes=(Scope.REPLICAS,),
        target=Kind.REPLICA, words=("whereis",), help="Go to the node that the replica runs on.",
    ),
    Action(
        id="restart", title="restart", keys=("r",), scopes=(Scope.REPLICAS,), target=Kind.REPLICA,
        command="restart", target_key="replica", dangerous=True, bulk=True, shown=True,
        confirm="Each gets no new requests, finishes those it has, and is started again.",
        help="Drain the replica and start it again.",
    ),
    Action(
        id="stop", title="stop", keys=("ctrl+d",), scopes=(Scope.REPLICAS,), target=Kind.REPLICA,
        command="stop", target_key="replica", dangerous=True, bulk=True, shown=True,
        confirm="Each gets no new requests, finishes those it has, and ends. Where its model "
        "wants more replicas than are left, the controller starts another.",
        help="Drain the replica and end it.",
    ),
)  # fmt: skip

_NODES = (
    Action(
        id="cordon", title="cordon", keys=("C",), scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.cordon", words=("node cordon", "cordon"), dangerous=True, bulk=True,
        shown=True, help="Place nothing new on the node; on a cordoned node the key takes it back.",
    ),
    Action(
        id="uncordon", title="uncordon", scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.uncordon", words=("node uncordon", "uncordon"), dangerous=True, bulk=True,
        help="Take back a cordon or a drain.",
    ),
    Action(
        id="drain", title="drain", keys=("U",), scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.drain", words=("node drain", "drain"), dangerous=True, bulk=True, shown=True,
        confirm="Its replicas are replaced on other nodes where there is room, then ended. "
        "Nothing new is placed there until it is uncordoned.",
        help="Cordon the node and move its replicas elsewhere.",
    ),
    Action(
        id="probe", title="probe", keys=("v",), scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.probe", words=("node probe", "probe"), dangerous=True, bulk=True,
        help="Connect and look at the node again, now.",
    ),
    Action(
        id="trust", title="trust", keys=("t",), scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.trust", words=("node trust", "trust"), dangerous=True,
        options=(Option("--fingerprint", "fingerprint"),),
        help="Accept the host key of a node that is refused because of it.",
    ),
    Action(
        id="takeover", title="take over", keys=("T",), scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.takeover", words=("node takeover", "takeover"), dangerous=True, bulk=True,
        confirm="This controller leads it from then on; the other one stops acting there within "
        "seconds. Replicas of this cluster's name are adopted, others are left alone.",
        help="Lead a node that is refused because another controller leads it.",
    ),
    Action(
        id="provision", title="install the engine", scopes=(Scope.NODES,), target=Kind.NODE,
        command="node.provision", words=("node provision", "provision"), dangerous=True, bulk=True,
        options=(Option("--engine", "engine"),),
        confirm="A prebuilt llama.cpp server is installed into a folder of llmgw's own there; "
        "nothing else on the node changes.",
        help="Install the llama.cpp engine on a node that has none.",
    ),
)  # fmt: skip

_MODELS = (
    Action(
        id="explain", title="explain", keys=("x",), scopes=_SCALED, target=Kind.MODEL,
        command="explain", shown=True,
        help="Why the model's replicas are where they are, or are not.",
    ),
    Action(
        id="unload", title="stop model", keys=("ctrl+d",), scopes=(Scope.MODELS,),
        target=Kind.MODEL, command="scale", fixed={"mode": "stopped"}, dangerous=True, bulk=True,
        shown=True, confirm="All its replicas finish what they have and end, and requests for it "
        "are refused until it is scaled again.",
        help="Set the model to stopped and end all its replicas.",
    ),
    Action(
        id="class", title="class", keys=("a",), scopes=(Scope.MODELS,), target=Kind.MODEL,
        command="class", options=(Option("", "class"),), dangerous=True,
        help="What the model's capacity is worth against that of others.",
    ),
    Action(
        id="owner", title="owner", keys=("o",), scopes=(Scope.MODELS,), target=Kind.MODEL,
        command="owner", options=(Option("", "owner"),), dangerous=True,
        help="Whose quota the model is charged to; `-` for nobody's.",
    ),
    Action(
        id="resources", title="resources", keys=("R",), scopes=(Scope.MODELS,), target=Kind.MODEL,
        command="resources", dangerous=True,
        options=(Option("--profile", "profile"), Option("--memory", "min_memory_gb", Values.NUMBER),
                 Option("--cores", "cpu_cores", Values.NUMBER)),
        help="The memory (GiB) and cores that a replica reserves.",
    ),
    Action(
        id="remove", title="remove model", keys=("ctrl+k",), scopes=(Scope.MODELS,),
        target=Kind.MODEL, command="remove", words=("remove", "rm"), dangerous=True, bulk=True,
        confirm="It leaves the catalog and its replicas end. Weights stay where they are.",
        help="Take a model that was added at run time out of the catalog.",
    ),
)  # fmt: skip

_OVERVIEW = (
    Action(
        id="fold-metrics", title="numbers", keys=("m",), scopes=(Scope.OVERVIEW,),
        words=("metrics",), help="Show or hide the numbers of the selected model.",
    ),
    Action(
        id="fold-events", title="events", keys=("e",), scopes=(Scope.OVERVIEW,),
        words=("ticker",), help="Show or hide the events on the overview.",
    ),
)  # fmt: skip

_LOGS = (
    Action(
        id="log-follow", title="follow", keys=("s",), scopes=(Scope.LOGS,), words=("follow",),
        shown=True, help="Follow the end, or stay here. Scrolling up stays, too.",
    ),
    Action(
        id="log-wrap", title="wrap", keys=("w",), scopes=(Scope.LOGS,), words=("wrap",),
        shown=True, help="Fold long lines, or let them run out to the right.",
    ),
    Action(
        id="log-highlight", title="highlight", keys=("ctrl+f",), scopes=(Scope.LOGS,),
        words=("highlight",), shown=True,
        help="Make a text stand out, with the lines round it left in place.",
    ),
    Action(
        id="log-next", title="next match", keys=("n",), scopes=(Scope.LOGS,), words=("next",),
        help="To the next line that matches.",
    ),
    Action(
        id="log-before", title="match before", keys=("N",), scopes=(Scope.LOGS,),
        words=("before",), help="To the line before that matches.",
    ),
    Action(
        id="log-mark", title="mark", keys=("m",), scopes=(Scope.LOGS,), words=("mark",),
        help="Draw a line under what was read.",
    ),
    Action(
        id="log-clear", title="clear", keys=("C",), scopes=(Scope.LOGS,), words=("clear",),
        help="Take all lines off the screen; new ones still come.",
    ),
    Action(
        id="log-copy", title="copy log", keys=("c",), scopes=(Scope.LOGS,), words=("copy log",),
        help="Send the lines shown to the terminal's clipboard.",
    ),
    Action(
        id="log-pager", title="pager", keys=("v",), scopes=(Scope.LOGS,), words=("pager",),
        shown=True, help="Read the lines shown in $PAGER; the console comes back after it.",
    ),
)  # fmt: skip

ACTIONS: tuple[Action, ...] = (
    *_GO, *_ANYWHERE, *_LISTS, *_SCALING, *_REPLICAS, *_NODES, *SERVING, *_MODELS, *MIRROR, *_LOGS,
    *_OVERVIEW,
)  # fmt: skip

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
