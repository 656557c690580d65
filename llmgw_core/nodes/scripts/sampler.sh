# sampler.sh STATE SECONDS: one picture of the node every so often, until whoever asked is gone.
# Builtins only, but for one sleep and, where there are instances, one stat.

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

main() {
  find_base "$1" || {
    echo "! cannot create or enter the directory ${path:-}"
    exit 73
  }
  root=$base/run told='' known='' living='' turn=0
  find_limits
  until orphaned; do
    host
    instances
    echo .
    turn=$((turn + 1))
    # what was told is told again now and then, so that the list cannot grow for ever
    [ $((turn % 1000)) -ne 0 ] || told=
    nap "$2"
  done
}

main "$@"
exit
