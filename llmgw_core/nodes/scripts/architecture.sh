# architecture.sh KIND PROGRAM SECONDS BYTES: let an engine try to load a tiny file, the first BYTES of
# the payload; what follows them is a Python program that asks it. Prints the end of what it said, and
# ends as it did. Statuses of our own: 73 no directory, 74 cannot write, 127 no such program.

limited() { # SECONDS COMMAND…
  seconds=$1
  shift
  if timeout -k 1 5 true 2>/dev/null; then timeout -k 2 "$seconds" "$@"; else "$@"; fi
}

main() {
  kind=$1 seconds=$3 bytes=$4
  program=$(decode "$2") || exit 127
  [ -x "$program" ] || exit 127
  work=$(mktemp -d /dev/shm/llmgw-ask.XXXXXX 2>/dev/null || mktemp -d /tmp/llmgw-ask.XXXXXX 2>/dev/null) || exit 73
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP TERM INT PIPE
  # of questions that were killed
  find "${work%/*}" -maxdepth 1 -name 'llmgw-ask.*' -user "$(id -u)" -mmin +10 -exec rm -rf {} + 2>/dev/null
  { payload >"$work/all" && head -c "$bytes" "$work/all" >"$work/model.gguf" \
    && tail -c +$((bytes + 1)) "$work/all" >"$work/ask.py"; } || exit 74
  # The cards are left to those who serve with them.
  export CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES=-1
  case $kind in
    xllamacpp) set -- "$program" "$work/ask.py" "$work/model.gguf" "$work/http.sock" ;;
    *) set -- "$program" -m "$work/model.gguf" --host "$work/http.sock" ;;
  esac
  (cd "$work" && limited "$seconds" "$@") >"$work/said" 2>&1 </dev/null
  status=$?
  tail -c 16384 "$work/said"
  exit "$status"
}

main "$@"
exit
