# Start llama-server on a node: sh llamacpp_server.sh PROGRAM MODEL OPTION…
# MODEL may be a folder (FOLDER/): its first split file, or its only GGUF file; an mmproj file there
# goes with it. `--try OPT[=VALUE]` is OPT VALUE where this build knows OPT, and nothing otherwise.
# `--own-threads` is half the cores that this process may use, 16 at most.
set -u

trouble() {
  echo "llmgw: error: $1" >&2
  exit 66
}

program=$1 model=$2
shift 2
[ -x "$program" ] || command -v "$program" >/dev/null || trouble "there is no program $program"

projector=
case $model in
  */)
    [ -d "$model" ] || trouble "the model folder $model cannot be read: it is not there"
    first= only= firsts=0 count=0
    for file in "$model"*.[gG][gG][uU][fF]; do
      [ -e "$file" ] || continue
      case ${file##*/} in
        *[mM][mM][pP][rR][oO][jJ]*)
          projector=${projector:-$file}
          continue
          ;;
        *-00001-of-*) first=$file firsts=$((firsts + 1)) ;;
      esac
      only=$file count=$((count + 1))
    done
    [ "$firsts" -eq 0 ] || { only=$first count=$firsts; }
    case $count in
      1) ;;
      0) trouble "the model folder $model holds no GGUF file; name one file" ;;
      *) trouble "the model folder $model holds $count GGUF files to choose from; name one file" ;;
    esac
    echo "llmgw: $model is ${only##*/}" >&2
    model=$only
    ;;
  *) [ -f "$model" ] || trouble "there is no model file $model" ;;
esac

own_threads() {
  cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
  path=
  while IFS=: read -r number controllers group; do
    [ "$number$controllers" != 0 ] || path=${group%/}
  done 2>/dev/null </proc/self/cgroup
  while :; do
    if read -r quota period 2>/dev/null <"/sys/fs/cgroup$path/cpu.max" && [ "$quota" != max ]; then
      [ $((quota / period)) -ge "$cores" ] || cores=$((quota / period))
    fi
    [ -n "$path" ] || break
    path=${path%/*}
  done
  cores=$((cores / 2))
  [ "$cores" -ge 1 ] || cores=1
  [ "$cores" -le 16 ] || cores=16
}

knows() { # OPTION
  printf '%s\n' "$help" | grep -Eq -- "(^|[ ,])$1([ ,=]|\$)"
}

# Every word moves from the front to the end once; the options are then as the server takes them.
help=$("$program" --help 2>&1) || :
left=$#
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  case $word in
    --try)
      name=${1%%=*}
      if knows "$name"; then
        set -- "$@" "$name"
        case $1 in *=*) set -- "$@" "${1#*=}" ;; esac
      fi
      shift
      left=$((left - 1))
      ;;
    --own-threads)
      own_threads
      echo "llmgw: $cores threads, half of what it may use at most; cpu_cores sets another number" >&2
      set -- "$@" --threads "$cores" --threads-batch "$cores"
      ;;
    --mmproj | -mm | --no-mmproj)
      projector=
      set -- "$@" "$word"
      ;;
    *) set -- "$@" "$word" ;;
  esac
done
[ -z "$projector" ] || set -- "$@" --mmproj "$projector"
exec "$program" --model "$model" "$@"
