# sampler.sh STATE SECONDS [ID TOKEN LIMIT WORD…]: one picture of the node every so often, until whoever
# asked is gone. Builtins only, but for one sleep and, where there are instances, one stat.
# Whoever asked says a line back for each picture: that, and not this loop's own life, renews the lease of
# controller ID (see lease.sh), for a loop may live on for long behind a cut connection.

host() {
  read -r line </proc/stat && echo "c ${line#cpu}"
  total=- available=-
  while read -r key kb _; do
    case $key in
      MemTotal:) total=$kb ;;
      MemAvailable:)
        available=$kb
        break
        ;;
      Buffers:) break ;; # kernels before 3.14
    esac
  done </proc/meminfo
  memory_now
  echo "m $total $available $limits"
  read -r load _ </proc/loadavg && echo "l $load"
  read -r uptime _ </proc/uptime && echo "u $uptime"
}

instances() {
  set --
  for d in "$root"/*; do
    [ -d "$d" ] && usable_name "${d##*/}" && set -- "$@" "$d"
  done
  [ $turn -ne 0 ] || find_living "$@"
  # every fifth time, and at once for engines that were not there before
  [ "$living" = "$known" ] && [ $((turn % 5)) -ne 0 ] || sum_rss "$living"
  known=$living
  living=
  for d in "$@"; do
    describe "$d"
    case $st in
      running | orphan) living="$living $ep" ;;
    esac
    mark=" ${d##*/}:$tok "
    case $told in
      *"$mark"*) ;;
      *) # once a start; the reader remembers
        spec=
        { IFS= read -r spec <"$d/spec.json"; } 2>/dev/null
        [ -z "$spec" ] || printf 's %s %s\n' "${d##*/}" "$spec"
        [ -z "$tok" ] || told="$told$mark"
        ;;
    esac
  done
  log_sizes "$@"
}

keep_lease() { # ID TOKEN LIMIT WORD…, before each picture; ends the loop where another has it
  if [ "$lease" = ours ]; then
    if others_lease "$1"; then
      tell_lease lost
      exit
    fi
    # taken away by hand: begun anew, it is taken anew
    [ -n "$l_id" ] || exit 0
    renew_lease "$1"
    return
  fi
  id=$1 token=$2 limit=$3
  shift 3
  take_lease "$id" "$token" "$limit" ask "$@"
  if [ "$lease" = other ]; then
    tell_lease other
    exit
  fi
}

main() {
  find_base "$1" || {
    echo "! cannot create or enter the directory ${path:-}"
    exit 73
  }
  root=$base/run told='' known='' living='' turn=0 lease='' pause=$2
  shift 2
  find_limits
  until orphaned; do
    [ $# -eq 0 ] || keep_lease "$@"
    host
    instances
    echo .
    turn=$((turn + 1))
    # what was told is told again now and then, so that the list cannot grow for ever
    [ $((turn % 1000)) -ne 0 ] || told=
    nap "$pause"
    read -r _ || exit 0
  done
}

# one line, with nothing behind it: what follows on stdin is what was said back
main "$@"; exit
