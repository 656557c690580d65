# lib.sh: what every script of llmgw on a node starts with. POSIX sh only: dash, bash, busybox.
# Functions answer in variables where a $(…) would cost a fork.
set -u
umask 077
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
PATH=$PATH:/usr/local/cuda/bin:/opt/rocm/bin:${HOME:-}/.local/bin
export PATH
# What runs here is no part of an instance, even where the login shell's environment says so.
unset LLMGW_INSTANCE
boot=
read -r boot </proc/sys/kernel/random/boot_id 2>/dev/null || boot=unknown

fail() { # STATUS SENTENCE
  status=$1
  shift
  printf '%s\n' "$*" >&2
  exit "$status"
}

decode() { # an argument as script.py encodes it
  case $1 in
    b64:*) printf %s "${1#b64:}" | base64 -d ;;
    *) printf %s "$1" ;;
  esac
}

expand() { # PATH -> $path, absolute
  path=$1
  case $path in
    /*) return 0 ;;
  esac
  [ -n "${HOME:-}" ] || fail 78 "HOME is not set for this user"
  case $path in
    '~') path=$HOME ;;
    '~/'*) path=$HOME/${path#'~/'} ;;
    *) path=$HOME/$path ;;
  esac
}

find_base() { # "=" or llmgw's directory as configured -> $base, absolute and without links
  if [ "$1" = = ]; then
    base=${LLMGW_DIR:-.local/state/llmgw}
  else
    base=$(decode "$1")
  fi
  expand "$base"
  base=$path
  mkdir -p "$base" 2>/dev/null
  base=$(cd "$base" 2>/dev/null && pwd -P) || return 1
  # A home that several machines share would show each of them the others' records.
  case $(stat -f -c %T "$base" 2>/dev/null) in
    nfs* | lustre | cifs | smb* | afs | gpfs | ceph | panfs | beegfs | fuse*)
      host=node
      read -r host </proc/sys/kernel/hostname
      case $base in
        */host-"$host") ;;
        *) base=$base/host-$host && mkdir -p "$base" || return 1 ;;
      esac
      ;;
  esac
}

need_base() {
  find_base "$1" || fail 73 "cannot create or enter the directory ${path:-}"
}

clock() { # -> $now, hundredths of a second since boot
  read -r now _ </proc/uptime
  now=$((${now%.*} * 100 + 1${now#*.} - 100))
}

nap() { # SECONDS, for a sleep that may only know whole ones
  sleep "$1" 2>/dev/null || sleep 1
}

size_of() { # FILE -> $size; 0 where it is not there
  size=$(stat -L -c %s "$1" 2>/dev/null) || size=$(wc -c 2>/dev/null <"$1") || size=0
}

stat_of() { # PID -> p_state p_parent p_sid p_start; fails where there is no such process
  case $1 in
    '' | *[!0-9]*) return 1 ;;
  esac
  { IFS= read -r p_line </proc/"$1"/stat; } 2>/dev/null || return 1
  # the command's name may hold spaces and brackets: cut after the last one
  p_line=${p_line##*) }
  # shellcheck disable=SC2086
  set -- $p_line
  [ $# -ge 20 ] || return 1
  p_state=$1 p_parent=$2 p_sid=$4 p_start=${20}
}

alive() { # PID START BOOT: whether that very process still runs (a zombie does not)
  [ "$3" = "$boot" ] && stat_of "$1" && [ "$p_start" = "$2" ] || return 1
  case $p_state in
    Z | X | x) return 1 ;;
  esac
}

orphaned() { # whether what started this script is gone
  stat_of $$ || return 0
  [ "$p_parent" != "$PPID" ]
}

read_record() { # DIR -> sp ss (supervisor) ep es (engine) pb (boot) tok
  sp='' ss='' ep='' es='' pb='' tok=''
  { read -r sp ss ep es pb tok _ <"$1/pid"; } 2>/dev/null
  [ -n "$tok" ]
}

read_exit() { # DIR -> rc, where the run of token $tok left its status
  x_rc='' x_tok=''
  { read -r x_rc _ x_tok _ <"$1/exit"; } 2>/dev/null
  [ -n "$tok" ] && [ "$x_tok" = "$tok" ] && rc=$x_rc
}

state_of() { # DIR -> st, rc and the record's variables
  rc=-
  if ! read_record "$1"; then
    st=none
  elif alive "$ep" "$es" "$pb"; then
    if alive "$sp" "$ss" "$pb"; then st=running; else st=orphan; fi
  elif read_exit "$1"; then
    st=exited
  elif alive "$sp" "$ss" "$pb"; then
    st=ending
  elif read_exit "$1"; then # written between the two looks
    st=exited
  elif [ "$pb" != "$boot" ]; then
    st=rebooted
  else
    st=lost
  fi
}

usable_name() {
  case $1 in
    '' | .* | *[!A-Za-z0-9_.@%+=,-]*) return 1 ;;
  esac
}

describe() { # DIR: one line for records.py
  state_of "$1"
  log_base=0
  { read -r _ _ log_base _ <"$1/log.base"; } 2>/dev/null
  rss=- peak=- cpu=-
  case $ep in
    '' | *[!0-9]*) ;;
    *) eval "rss=\${rss_$ep:--} peak=\${peak_$ep:--} cpu=\${cpu_$ep:--}" ;;
  esac
  halted=-
  [ $st != running ] && [ $st != orphan ] || ! stat_of "$ep" || halted=$p_state
  echo "i ${1##*/} $st ${ep:--} ${es:--} ${pb:--} ${tok:--} ${rc:--} $rss ${log_base:-0} $peak $cpu $halted"
}

log_sizes() { # DIR…: one line a log
  for d in "$@"; do
    set -- "$@" "$d/log"
    shift
  done
  [ $# -eq 0 ] || stat -c 'z %s %n' "$@" 2>/dev/null || : # some have no log
}

find_living() { # DIR… -> living, "PID PID …" of their engines
  living=
  for d in "$@"; do
    state_of "$d"
    case $st in
      running | orphan) living="$living $ep" ;;
    esac
  done
}

sum_rss() { # "PID PID …" of living engines -> rss_PID peak_PID in kB, cpu_PID in ticks, of their sessions
  [ -n "$1" ] || return 0
  if [ -z "${page:-}" ]; then
    page=$(getconf PAGESIZE 2>/dev/null) || page=4096
  fi
  # A process's peak holds what it shares with the others (mapped weights, workers' common memory) and
  # what is its own: the former counts once, by the process that has most of it.
  # two programs, since a shell that reads byte by byte takes ten times as long over all of /proc
  eval "$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v leaders="$1" -v page="$page" '
    BEGIN { split(leaders, list); for (i in list) pages[list[i]] = 0 }
    { pid = $1; sub(/^.*\) /, "") }
    $4 in pages {
      pages[$4] += $22
      ticks[$4] += $12 + $13
      file = "/proc/" pid "/status"
      most = shared = 0
      while ((getline line < file) > 0) {
        split(line, word)
        if (word[1] == "VmHWM:") most = word[2]
        else if (word[1] == "RssFile:" || word[1] == "RssShmem:") shared += word[2]
      }
      close(file)
      own[$4] += most > shared ? most - shared : 0
      if (most > 0 && shared > common[$4]) common[$4] = shared
    }
    END {
      for (leader in pages) {
        printf "rss_%s=%d\ncpu_%s=%d\n", leader, pages[leader] * page / 1024, leader, ticks[leader]
        peak = own[leader] + common[leader]
        if (peak > 0) printf "peak_%s=%d\n", leader, peak
      }
    }
  ' 2>/dev/null)"
}

members() { # DIR: PID:START of every process of the instance whose record was read last
  (cd /proc && grep -lszxF "LLMGW_INSTANCE=$1" [0-9]*/environ 2>/dev/null) | while IFS=/ read -r p _; do
    stat_of "$p" && [ "$p_state" != Z ] && echo "$p:$p_start"
  done
  # A session's number is only known to be ours while its leader lives.
  alive "$ep" "$es" "$pb" || return 0
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    stat_of "$p" && [ "$p_sid" = "$ep" ] && [ "$p_state" != Z ] && echo "$p:$p_start"
  done
}

still() { # "PID:START …": those that still run
  for m in $1; do
    alive "${m%:*}" "${m#*:}" "$boot" && echo "$m"
  done
}

signal() { # SIGNAL "PID:START …", each looked at once more before it is hit
  for m in $2; do
    alive "${m%:*}" "${m#*:}" "$boot" && kill -s "$1" "${m%:*}" 2>/dev/null
  done
}
