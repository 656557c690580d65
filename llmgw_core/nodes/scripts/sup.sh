# sup.sh DIR TOKEN HALF: runs DIR/cmd in a session of its own, keeps its log below twice HALF bytes
# and writes down how it ended. It restarts nothing: that is the controller's to decide.

rotate() { # moves the log to log.1; log.base says "START1 END1 START [moving]" in bytes since the start
  size_of log
  copied=$size
  printf '%s %s %s moving\n' "$b1" "$e1" "$b" >log.base.new && mv -f log.base.new log.base
  rm -f log.1
  # of a burst only the end is kept
  cut=0
  [ "$copied" -le "$half" ] || cut=$((copied - half))
  tail -c +$((cut + 1)) log | head -c $((copied - cut)) >log.1.new && mv -f log.1.new log.1 || rm -f log.1.new
  size_of log
  # The engine appends, so it goes on at 0.
  : >log
  b1=$((b + cut)) e1=$((b + copied)) b=$((b + size))
  printf '%s %s %s\n' "$b1" "$e1" "$b" >log.base.new && mv -f log.base.new log.base
}

keep_log_small() { # outlives a killed supervisor, ends with the engine
  # here, not where it is started: a redirection would keep a copy, and with it the lock
  exec 9>&-
  b1=0 e1=0 b=0 last=0
  while alive "$ep" "$es" "$pb"; do
    size_of log
    [ "$size" -le "$half" ] || rotate
    if [ $((size - last)) -gt $((half / 8)) ]; then pause=0.1; else pause=2; fi
    last=$size
    nap "$pause"
  done
}

end_survivors() { # what the engine left behind holds its port and GPU memory
  clock
  end=$((now + 1000))
  last=$((end + 500))
  how=TERM
  while left=$(members "$d") && [ -n "$left" ] && [ "$now" -lt "$last" ]; do
    [ -z "$how" ] || signal "$how" "$left"
    if [ "$now" -ge "$end" ]; then how=KILL; else how=''; fi
    nap 0.1
    clock
  done
}

main() {
  d=$1 mine=$2 half=$3
  cd "$d" || exit 1
  # what this shell has to say about its child ("Terminated") is no part of the engine's log
  exec </dev/null >/dev/null 2>&1
  exec 9>>lock
  flock -n 9 2>/dev/null
  [ $? -ne 1 ] || exit 75
  stat_of $$
  start=$p_start
  # A handler, not "ignore": the engine would inherit that.
  trap : TERM INT HUP
  # A background job leads no group, so setsid does not fork: $! is the engine.
  setsid sh ./cmd $$ "$start" "$boot" "$mine" "$d" >>log 2>&1 9>&- &
  child=$!
  while ! { read_record "$d" && [ "$tok" = "$mine" ]; }; do
    stat_of "$child" && [ "$p_state" != Z ] || break
    nap 0.02
  done
  if read_record "$d" && [ "$tok" = "$mine" ]; then keep_log_small & fi
  while :; do
    wait "$child"
    status=$?
    # a trapped signal ends wait too
    [ $status -gt 128 ] && stat_of "$child" || break
  done
  read_record "$d" && [ "$tok" = "$mine" ] || exit 74
  end_survivors
  printf '%s %s %s\n' "$status" "$(date +%s)" "$mine" 1<>exit.new && mv -f exit.new exit
  # The rest of this session is the log's keeper and its sleep.
  trap '' TERM
  kill -s TERM 0
}

main "$@"
exit
