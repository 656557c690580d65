# fetch.sh DIR: brings one version of weights to this node. DIR is its instance; DIR/job says what:
#   VERSION MODE PAUSE TRIES STALL MARGIN      get or check; hundredths of a second; seconds; bytes
#   SIZE SHA256 URL FILE                       a line a file
# The key lies in auth.conf (for curl), wgetrc and token, and never in an argument. Lines that begin
# with "@@" are for weights.py.

give_up() { # STATUS SENTENCE
  code=$1
  shift
  echo "@@error $code $*"
  exit "$code"
}

fail() { # what lib.sh and weights.sh find is told the same way
  give_up "$@"
}

tidy() {
  let_go
  rm -f "$d/auth.conf" "$d/wgetrc" "$d/token" "$d/url" "$d/url.conf"
}

stopped() {
  [ -z "$child" ] || kill "$child" 2>/dev/null
  echo "@@stopped"
  exit 143
}

works() { # COMMAND…: there are programs that lie on PATH and lack a library
  "$@" </dev/null >/dev/null 2>&1
}

find_tools() { # -> getter, summer
  getter='' summer=''
  if works curl --version; then
    getter=curl
  elif wget --version 2>/dev/null | grep -q '^GNU Wget'; then
    getter=wget
  elif python_works; then
    getter=python
  elif works wget --help && [ ! -s "$d/token" ]; then
    # busybox: it can take a key only as an argument, where everybody would see it
    getter=small_wget
  fi
  # the first two use the processor's own instructions and take a sixth of the time
  if works openssl dgst -sha256; then
    summer=openssl
  elif python_works; then
    summer=python
  elif works sha256sum; then
    summer=sha256sum
  elif works shasum -a 256; then
    summer=shasum
  fi
}

python_works() {
  works python3 -c 'import hashlib, urllib.request'
}

# Each is run in the background, where exec makes it the very process that is watched.
get_curl() {
  exec curl -q -sS --fail --noproxy '*' --connect-timeout 15 -K "$d/auth.conf" -K "$d/url.conf" \
    -C - -o "$half" -w '%{http_code}\n'
}

get_wget() {
  exec wget --config="$d/wgetrc" -nv --no-proxy --max-redirect=0 -t 1 -T 30 -c -O "$half" -i "$d/url"
}

get_small_wget() {
  exec wget -q -Y off -c -O "$half" "$url"
}

get_python() {
  exec python3 "$d/fetch_file.py" "$d/url" "$d/token" "$half"
}

sum_sha256sum() { exec sha256sum <"$half"; }
sum_shasum() { exec shasum -a 256 <"$half"; }
sum_openssl() { exec openssl dgst -sha256 <"$half"; }
sum_python() {
  exec python3 -c 'import hashlib, sys
sum = hashlib.sha256()
for block in iter(lambda: sys.stdin.buffer.read(1 << 20), b""): sum.update(block)
print(sum.hexdigest())' <"$half"
}

# without what came late, a sum of a crashed node's file would be believed
flush_half() { exec sync "$half"; }

run() { # PHASE COMMAND: beside, with its progress in the log -> code
  phase=$1
  # shellcheck disable=SC2094
  "$2" </dev/null >"$d/out" 2>"$d/err" 5<&- &
  child=$!
  [ -z "${held:-}" ] || { stat_of "$child" && echo "$child $p_start $boot" >"$part/.lock.d/child"; }
  watch
  wait "$child"
  code=$?
  child=
}

watch() {
  step=0
  clock
  moved=$now last=-1
  while stat_of "$child" && [ "$p_state" != Z ]; do
    case $step in
      0) nap 0.02 ;;
      1) nap 0.1 ;;
      2) nap 0.3 ;;
      *)
        tick
        nap 1
        ;;
    esac
    step=$((step + 1))
  done
}

tick() {
  size_of "$half"
  clock
  checked=0
  if [ "$phase" = check ]; then
    while read -r key value; do
      case $key in rchar:) checked=$value ;; esac
    done 2>/dev/null <"/proc/$child/io"
    [ "$checked" -le "$size" ] || checked=$size
  fi
  progress
  if [ "$size" -ne "$last" ]; then
    last=$size moved=$now
  elif [ "$phase" = get ] && [ $((now - moved)) -gt "$stall" ]; then
    kill "$child" 2>/dev/null
  fi
}

progress() {
  echo "@@progress $now $((others + size)) $total $phase $checked $name"
}

judge() { # what a download that ended says -> verdict, why
  why=$(tail -n 1 "$d/err" 2>/dev/null)
  http=
  case $getter in
    curl | python) read -r http <"$d/out" 2>/dev/null ;;
    wget)
      http=$(sed -n 's/.*ERROR \([0-9][0-9][0-9]\).*/\1/p' "$d/err" | tail -n 1)
      case $code in
        3) code=23 ;;
        4) code=7 ;;
        6) code=22 http=401 ;;
        8) code=22 ;;
      esac
      ;;
    small_wget)
      http=$(sed -n 's/.*HTTP\/[0-9.]* \([0-9][0-9][0-9]\).*/\1/p' "$d/err" | tail -n 1)
      [ -z "$http" ] || code=22
      ;;
  esac
  verdict=broken
  case $code in
    22)
      why="it answers ${http:-with an error}"
      case $http in
        401 | 403 | 404 | 410) verdict=refused ;;
        416) verdict=range ;;
        429 | 503) verdict=busy ;;
      esac
      ;;
    23) verdict=write ;;
    33) verdict=range ;;
    143) why="nothing came from it for $((stall / 100)) s" ;;
    0) why="it sent less than it has" ;;
  esac
  case $(cat "$d/err" 2>/dev/null) in
    *'No space left'* | *'quota exceeded'*) verdict=write ;;
  esac
}

full() { # a download that could not write
  size_of "$half"
  room_for $((want - size)) "$margin" "$version" || give_up 28 "$why"
  give_up 74 "cannot write below $base/weights on the node: $(tail -n 1 "$d/err")"
}

rest() { # HUNDREDTHS
  (exec 7>&-; nap "$(($1 / 100)).$(($1 / 10 % 10))$(($1 % 10))") &
  child=$!
  wait "$child"
  child=
}

download() { # until the half file is as long as it must be
  : >>"$half" || full
  delay=$pause tries=0
  size_of "$half"
  best=$size
  printf '%s\n' "$url" >"$d/url" && printf 'url = "%s"\n' "$url" >"$d/url.conf" || full
  while [ "$size" -lt "$want" ]; do
    [ -n "$getter" ] || give_up 69 "the node has none of curl, wget and python3 to fetch with; install curl there"
    run get "get_$getter"
    size_of "$half"
    [ "$code" -ne 0 ] || [ "$size" -lt "$want" ] || break
    judge
    case $verdict in
      refused) give_up 77 "the mirror does not give out $name of $version (it answers $http)" ;;
      write) full ;;
      range) : >"$half" ;;
    esac
    if [ "$size" -gt "$best" ]; then
      best=$size reached=y tries=0 delay=$pause
    fi
    [ -z "$http" ] || [ "$http" = 000 ] || reached=y
    tries=$((tries + 1))
    limit=$most
    # who never answered is soon given up: there is another way
    [ -n "$reached" ] || [ "$limit" -lt 3 ] || limit=3
    [ "$verdict" != busy ] || limit=$((most * 10))
    if [ "$tries" -ge "$limit" ]; then
      host=${url#*://}
      give_up 68 "the node cannot fetch from the mirror at ${host%%/*}: ${why:-no answer}"
    fi
    rest "$delay"
    delay=$((delay * 2))
    [ "$delay" -le 1600 ] || delay=1600
    size_of "$half"
  done
}

check() { # whether the half file is what it must be
  size_of "$half"
  [ "$size" -eq "$want" ] || return 1
  run check "sum_$summer"
  digest=$(sed -n 's/^\(.*[^0-9a-f]\)\{0,1\}\([0-9a-f]\{64\}\).*/\2/p' "$d/out")
  [ "$code" -eq 0 ] && [ -n "$digest" ] || give_up 74 "cannot read $half on the node: $(tail -n 1 "$d/err")"
  [ "$digest" = "$sha" ]
}

settle() { # the file under its final name
  run save flush_half
  case $name in
    */*) make_folders "$whole/${name%/*}" ;;
  esac
  mv -f "$half" "$whole/$name" || give_up 74 "cannot rename $half to $whole/$name"
  stamp_of "$whole/$name"
  echo "$sha $stamp $name" >>"$verified" || give_up 74 "cannot write $verified: the disk is full"
}

bring() { # want sha url name
  half=$part/$sha
  # of an earlier run whose record was lost: looked at before it is fetched again
  if [ -n "$stamp" ]; then
    size_of "$half"
    if [ "${stamp%% *}" = "$want" ] && [ "$size" -lt "$want" ]; then
      mv -f "$whole/$name" "$half"
    else
      rm -f "$whole/$name"
    fi
  fi
  size_of "$half"
  [ "$size" -le "$want" ] || rm -f "$half"
  for round in 1 2; do
    [ "$mode" = get ] || size_of "$half"
    [ "$mode" = get ] || [ "$size" -eq "$want" ] || give_up 68 "$name of $version is not whole on the node"
    download
    if check; then
      settle
      return
    fi
    rm -f "$half"
    echo "@@damaged $round $name"
    [ "$mode" = get ] || break
  done
  give_up 65 "$name of $version came with a wrong checksum, $round times in all; check the mirror's copy"
}

take_stock() { # -> total, got, missing; DIR/todo has the files that are not here yet
  total=0 got=0 missing=0
  : >"$d/todo" || give_up 74 "cannot write in $d: the disk is full"
  while read -r want sha url word <&5; do
    name=$(decode "$word")
    usable_file "$name" || give_up 64 "$name is no path below a version"
    total=$((total + want))
    if is_verified "$name" "$want" "$sha"; then
      got=$((got + want))
      continue
    fi
    echo "$want $sha $url $word" >>"$d/todo" || give_up 74 "cannot write in $d: the disk is full"
    size_of "$part/$sha"
    [ "$size" -le "$want" ] || size=0
    [ "${stamp%% *}" != "$want" ] || size=$want
    got=$((got + size))
    missing=$((missing + want - size))
  done
}

bring_all() {
  while read -r want sha url word <&5; do
    name=$(decode "$word")
    stamp_of "$whole/$name"
    size_of "$part/$sha"
    [ "$size" -le "$want" ] || size=0
    [ "${stamp%% *}" != "$want" ] || size=$want
    others=$((got - size))
    bring
    got=$((others + want))
    clock
    size=$want phase=got checked=0
    progress
  done
}

finish() { # the mark of a whole version
  : >"$complete.new" || give_up 74 "cannot write $complete: the disk is full"
  mine='
'
  while read -r want sha url word <&5; do
    name=$(decode "$word")
    stamp_of "$whole/$name"
    mine="$mine$name
"
    echo "$sha $stamp $name" >>"$complete.new" || give_up 74 "cannot write $complete: the disk is full"
  done
  keep_others
  mv -f "$complete.new" "$complete" || give_up 74 "cannot write $complete"
  rm -f "$verified" "$part"/*
}

keep_others() { # another model may need other files of this version
  [ -f "$complete" ] || return 0
  while read -r sha size mtime name; do
    case $mine in
      *"
$name
"*) continue ;;
    esac
    stamp_of "$whole/$name"
    [ "$stamp" = "$size $mtime" ] || continue
    echo "$sha $stamp $name" >>"$complete.new" || give_up 74 "cannot write $complete: the disk is full"
  done <"$complete"
}

main() {
  d=$1 child='' reached='' held=''
  # the mark of the instance, which lib.sh takes off: a download must be found without this script
  LLMGW_INSTANCE=$d
  export LLMGW_INSTANCE
  base=$(cd "$d/../.." && pwd -P) || give_up 74 "cannot enter $d"
  trap tidy EXIT
  trap stopped TERM INT HUP
  {
    read -r version mode pause most stall margin <&5
    stall=$((stall * 100))
    weights_of "$version"
    find_tools
    [ -n "$summer" ] || give_up 70 "the node has no program for SHA-256 sums; install coreutils, openssl or python3 there"
    make_folders "${verified%/*}" "${complete%/*}" "$whole"
    hold wait
    take_stock
  } 5<"$d/job"
  room_for "$missing" "$margin" "$version" || give_up 28 "$why"
  bring_all 5<"$d/todo"
  {
    read -r _ <&5
    finish
  } 5<"$d/job"
  echo "@@done $total $whole"
}

main "$@"
exit
