# instances.sh VERB STATE AREA HOLDER ARG…: the processes that llmgw keeps on a node, each in $base/AREA/NAME,
# behind lib.sh and lease.sh; HOLDER is the controller that asks, = for anyone.
#   spec.json  what was asked        cmd  what runs        sup.sh  its supervisor
#   pid        SUP_PID SUP_START ENGINE_PID ENGINE_START BOOT TOKEN
#   exit       STATUS TIME TOKEN     log log.1 log.base log.prev   its output
# Every verb says "make it so" and can be sent again. Statuses: 73 refused as things are, 74 cannot
# write, 75 somebody else is at it, 69 a tool is missing, 70 did not start, 79 another controller's node.

show() { # DIR…: records with all that can be said
  find_living "$@"
  sum_rss "$living"
  read -r uptime _ </proc/uptime
  echo "u $uptime"
  for d in "$@"; do
    describe "$d"
    spec=
    { IFS= read -r spec <"$d/spec.json"; } 2>/dev/null
    [ -z "$spec" ] || printf 's %s %s\n' "${d##*/}" "$spec"
  done
  log_sizes "$@"
}

list() {
  set --
  for d in "$root"/*; do
    [ -d "$d" ] && usable_name "${d##*/}" && set -- "$@" "$d"
  done
  show "$@"
}

unpack() { # FILE:SIZE…: cuts the payload into files of $new
  payload >"$new/.pack" || return 1
  at=1
  for item in "$@"; do
    bytes=${item#*:}
    tail -c +"$at" "$new/.pack" | head -c "$bytes" >"$new/${item%%:*}" || return 1
    size_of "$new/${item%%:*}"
    [ "$size" -eq "$bytes" ] || return 1
    at=$((at + bytes))
  done
  rm -f "$new/.pack"
  # Room for what is written once the engine runs, when a full disk would come too late.
  printf '%511s\n' ' ' >"$new/pid.new" && printf '%511s\n' ' ' >"$new/exit.new"
}

put_in_place() { # FILE:SIZE…, after the log of the run before was set aside
  mkdir -p "$d" || return 1
  if [ -f "$d/log" ]; then
    { [ -f "$d/log.1" ] && cat "$d/log.1" "$d/log" >"$d/log.prev.new" 2>/dev/null && rm -f "$d/log" \
      && mv -f "$d/log.prev.new" "$d/log.prev"; } || { rm -f "$d/log.prev.new" && mv -f "$d/log" "$d/log.prev"; }
    rm -f "$d/log.1" "$d/log.base"
  fi
  for f in "$d"/*; do # files of an earlier spec, which may be secrets
    f=${f##*/}
    case " $f:" in
      ' pid:' | ' exit:' | ' lock:' | ' log.prev:' | ' spec.json:' | ' cmd:' | ' sup.sh:') continue ;;
    esac
    case " $*" in
      *" $f:"*) ;;
      *) rm -f "$d/$f" ;;
    esac
  done
  for f in "$new"/*; do
    mv -f "$f" "$d/${f##*/}" || return 1
  done
}

start() { # NAME TOKEN HALF FILE:SIZE…
  d=$root/$1 token=$2 half=$3
  new=$root/.new.$1.$$
  shift 3
  command -v setsid >/dev/null || fail 69 "setsid is missing on the node; install util-linux there"
  # A lost link must not end this between two steps; a handler, so that nothing inherits it.
  trap : HUP TERM INT PIPE
  mkdir -p "$new" && unpack "$@" || { rm -rf "$new"; fail 74 "cannot write in $root"; }
  take_lock
  ! others_lease "$holder" || { rm -rf "$new"; need_lease "$holder"; }
  state_of "$d"
  case $st in
    running | orphan | ending)
      rm -rf "$new"
      [ "$tok" = "$token" ] || fail 73 "${d##*/} is $st under another start (pid $ep); stop it first"
      ;;
    *)
      if [ "$tok" = "$token" ]; then # this very start has run and ended
        rm -rf "$new"
      else
        clear_away
        put_in_place "$@" || { rm -rf "$new"; fail 74 "cannot write in $d"; }
        rm -rf "$new"
        # left by starts that were killed half way
        find "$root" -maxdepth 1 -name '.new.*' -mmin +10 -exec rm -rf {} + 2>/dev/null
        launch
      fi
      ;;
  esac
  drop_lock
  show "$d"
}

clear_away() { # workers of a run that has ended with nobody there to end them
  left=$(members "$d")
  tries=0
  while [ -n "$left" ]; do
    if [ $tries -ge 50 ]; then
      rm -rf "$new"
      fail 73 "processes of the run before of ${d##*/} will not die:" $left
    fi
    signal KILL "$left"
    nap 0.05
    tries=$((tries + 1))
    left=$(members "$d")
  done
}

launch() {
  setsid sh "$d/sup.sh" "$d" "$token" "$half" </dev/null >/dev/null 2>&1 8>&- &
  sup=$!
  clock
  end=$((now + 1000))
  until read_record "$d" && [ "$tok" = "$token" ]; do
    if ! stat_of "$sup" || [ "$p_state" = Z ]; then
      wait "$sup"
      status=$?
      read_record "$d" && [ "$tok" = "$token" ] && return
      [ $status -ne 75 ] || fail 75 "another start of ${d##*/} is under way"
      fail 70 "${d##*/} did not start (status $status): $(tail -c 300 "$d/log" 2>/dev/null | tail -n 1)"
    fi
    clock
    [ "$now" -lt "$end" ] || fail 70 "${d##*/} wrote no record within 10 s"
    nap 0.02
  done
}

same_run() { # under the lock: whether the record is still of the run that is to be stopped
  take_lock
  need_lease "$holder"
  read_record "$d" && [ "$tok" = "$mine" ] && return
  drop_lock
  return 1
}

remaining() { # what is left of the instance: members, and those seen at first that still run
  { members "$d"; still "$known"; } | sort -u
}

stop() { # NAME GRACE (hundredths of a second)
  need_lease "$holder"
  d=$root/$1 killed=0 left=''
  if read_record "$d"; then
    mine=$tok
    known=$(members "$d")
    end_run "$2"
    clock
    end=$((now + 2000))
    state_of "$d"
    while [ "$st" = ending ] && [ "$now" -lt "$end" ]; do # its exit is being written
      signal CONT "$sp:$ss"
      nap 0.05
      state_of "$d"
      clock
    done
    if [ "$st" = ending ]; then # a supervisor that writes nothing keeps nothing
      signal KILL "$sp:$ss"
      nap 0.1
    fi
  fi
  show "$d"
  echo "k $killed"
  for m in $left; do
    echo "left ${m%:*}"
  done
}

end_run() { # GRACE
  same_run || return 0
  # the leader of a session leads its group
  # what is stopped by a signal hears it only once it goes on
  ! alive "$ep" "$es" "$pb" || { kill -s TERM -- "-$ep"; kill -s CONT -- "-$ep"; } 2>/dev/null
  drop_lock
  clock
  end=$((now + $1))
  asked=
  while [ "$now" -lt "$end" ]; do
    if ! alive "$ep" "$es" "$pb"; then
      left=$(remaining)
      [ -n "$left" ] || return 0
      if [ -z "$asked" ]; then # workers that left the group
        same_run || return 0
        signal TERM "$left"
        signal CONT "$left"
        drop_lock
        asked=y
      fi
    fi
    nap 0.1
    clock
  done
  end=$((now + 500))
  left=$(remaining)
  while [ -n "$left" ] && [ "$now" -lt "$end" ]; do
    same_run || return 0
    killed=1
    signal KILL "$left"
    drop_lock
    nap 0.1
    clock
    left=$(remaining)
  done
}

strays() { # "o NAME PID" for each process that carries the mark of an instance whose engine is gone
  (cd /proc && grep -lszF "LLMGW_INSTANCE=$root/" [0-9]*/environ 2>/dev/null) | while IFS=/ read -r p _; do
    tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | while IFS= read -r mark; do
      case $mark in LLMGW_INSTANCE="$root"/*) ;; *) continue ;; esac
      name=${mark#LLMGW_INSTANCE="$root"/}
      usable_name "$name" || break
      state_of "$root/$name"
      case $st in running | orphan | ending) break ;; esac
      ! stat_of "$p" || [ "$p_state" = Z ] || echo "o $name $p"
      break
    done
  done
}

ownerless() { # under the lock: whether no engine of that record lives or is being ended
  take_lock
  need_lease "$holder"
  state_of "$d"
  case $st in
    running | orphan | ending) ;;
    *) return 0 ;;
  esac
  drop_lock
  return 1
}

reap() { # NAME GRACE: ends what carries the mark of an instance whose engine is gone; all else stays
  need_lease "$holder"
  d=$root/$1 killed=0 how=TERM
  ownerless || return 0
  drop_lock
  left=$(members "$d")
  for m in $left; do
    echo "o $1 ${m%:*}"
  done
  clock
  end=$((now + $2))
  last=$((end + 500))
  while [ -n "$left" ] && [ "$now" -lt "$last" ]; do
    if [ -n "$how" ]; then
      ownerless || return 0
      [ "$how" != KILL ] || killed=1
      signal "$how" "$left"
      signal CONT "$left"
      drop_lock
    fi
    how=
    nap 0.1
    clock
    [ "$now" -lt "$end" ] || how=KILL
    left=$(members "$d")
  done
  echo "k $killed"
  for m in $left; do
    echo "left ${m%:*}"
  done
}

forget() { # NAME
  d=$root/$1
  [ -e "$d" ] || return 0
  take_lock
  need_lease "$holder"
  state_of "$d"
  case $st in
    running | orphan | ending) fail 73 "${d##*/} is $st; stop it before it is forgotten" ;;
  esac
  # another who asked for the same may have been faster
  mv "$d" "$root/.gone.$1.$$" 2>/dev/null || [ ! -d "$d" ] || fail 74 "cannot remove $d"
  rm -rf "$root/.gone.$1.$$" || fail 74 "cannot remove $root/.gone.$1.$$"
}

main() {
  verb=$1
  need_base "$2"
  root=$base/$3 holder=$4
  shift 4
  mkdir -p "$root" || fail 74 "cannot create $root"
  case $verb in
    list | start | stop | strays | reap | forget) "$verb" "$@" ;;
    *) fail 64 "unknown verb $verb" ;;
  esac
}

main "$@"
exit
