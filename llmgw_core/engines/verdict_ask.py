"""On a node: let xllamacpp load a file (``verdict_ask.py MODEL SOCKET``) and say why it cannot.

Copied there by ``nodes.verdicts``; needs Python 3.9 and xllamacpp. Exit status 69 without it, 1
where the file was not loaded, which is the rule.
"""

import sys


def main(model: str, socket: str) -> int:
    """Try to load the file; llama.cpp writes its reason to stderr by itself."""
    try:
        import xllamacpp
    except ImportError as error:
        sys.stderr.write(f"llmgw: {error}\n")
        return 69
    params = xllamacpp.CommonParams()
    params.model.path = model
    wanted = {
        # a socket in a directory of our own takes no port and lets nobody in
        "hostnames": [socket],
        "hostname": socket,
        # the file is tried once, and not once more to see how it fits
        "fit_params": False,
        "warmup": False,
        "n_gpu_layers": 0,
    }
    for name, value in wanted.items():
        if hasattr(params, name):
            setattr(params, name, value)
    try:
        xllamacpp.Server(params)
    except RuntimeError as error:
        sys.stderr.write(f"llmgw: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
