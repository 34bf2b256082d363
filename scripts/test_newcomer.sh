#!/usr/bin/env bash
# A newcomer's machine: in bare roots of Debian 12 and Debian 13, what README.md (install, Python, tour) and the tutorials print is
# typed as it stands there, against what was installed; no TRIGEN_ variable is set but by the pages, no build folder is there, no
# GPU, and nothing is skipped: what cannot be done ends the test. (Ubuntu 24.04's packages are not asked for.) Needs root and mmdebstrap.
# Usage: scripts/test_newcomer.sh [FOLDER]
#   FOLDER   holds what is installed: a wheel for this machine, and Debian packages, which take the place of the C tutorial's prefix.
#            Without it README's own lines set up Debian 12 and make the wheel, of this checkout with the libraries that lie in build/
#            (COMPILE=1: of nothing, all of it compiled there, six minutes of two cores), and the C tutorial installs a prefix.
#            Debian 13 gets Debian 12's wheel and prefix: README builds on Debian 12 and Ubuntu 24.04.
#   SUITES="bookworm trixie"  the roots
# PyTorch and JAX are build/python-venv's where the root's Python is of the same version (12), else Debian's own PyTorch (13: 2.6), else
# PyPI's; JAX PyPI's.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
folder=${1:+$(cd "$1" && pwd)}
suites=${SUITES:-bookworm trixie}
fail() { printf 'test_newcomer: %s\n' "$*" >&2; exit 1; }
since=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - since)) "$*"; }
[[ $(id -u) == 0 ]] || fail "needs root: it makes roots of Debian and enters them"
command -v mmdebstrap >/dev/null || fail "no mmdebstrap here; scripts/setup.sh --dev installs it"
[[ -n $folder || -n ${COMPILE:-} || -e build/libtrigen.a ]] || fail "build/ is not built, and no folder of packages was named"
if [[ -n $folder ]]; then
  wheel=$(ls "$folder"/trigen-*_"$(uname -m)".whl) || fail "no wheel for $(uname -m) in $folder"
  debs=("$folder"/{libtrigen0.1,libtrigen-dev,trigen}_*_"$(dpkg --print-architecture)".deb)
  for deb in "${debs[@]}"; do [[ -e $deb ]] || fail "no $deb"; done
fi
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# pip's own files here (an index of one's own, certificates) are read in the roots, too.
pip_places=(/etc/pip.conf /etc/xdg/pip /etc/ssl/certs)
while read -r place; do pip_places+=("$place"); done < <(python3 -m pip config list 2>/dev/null | grep -oE "(file://)?/[^' ]+" | sed 's,^file://,,' | sort -u)

# make_root SUITE PACKAGES: a root with the checkout's tracked and new files in the same folder as here, and no build folder.
make_root() {
  local root=$work/$1
  mmdebstrap --quiet --variant=minbase --include="ca-certificates${2:+,$2}" --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --skip=cleanup/apt \
    "$1" "$root" "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main"
  mkdir -p "$root$here/dist"
  git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' - |
    tar -c --null -T - | tar -x -C "$root$here"
  cp /etc/resolv.conf "$root/etc/"
}

# inside SUITE SCRIPT: the script in the root's checkout, as a newcomer's shell: none of this machine's variables but pip's own.
inside() { entered "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "see above"; }; }
entered() {
  local root=$work/$1 variables=()
  while read -r variable; do variables+=("$variable"); done < <(env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_FILE|SSL_CERT_DIR|https?_proxy|no_proxy)=')
  printf '%s\n' "$2" >"$root/root/typed.sh"
  mkdir -p "$root/opt/built" "$root/opt/python-venv"
  unshare -m bash -c 'set -e; mount --make-rprivate /; root=$1 here=$2 compile=$3 folders=$4; shift 4
    mount --bind /proc "$root/proc"; mount --bind /dev "$root/dev"; mount -t tmpfs none "$root/dev/shm"
    for folder in $folders; do
      [ -e "$folder" ] || continue
      if [ -d "$folder" ]; then mkdir -p "$root$folder"; else mkdir -p "$(dirname "$root$folder")"; [ -e "$root$folder" ] || touch "$root$folder"; fi
      mount --bind -o ro "$folder" "$root$folder"
    done
    [ ! -d "$here/build/python-venv" ] || mount --bind -o ro "$here/build/python-venv" "$root/opt/python-venv"
    [ -n "$compile" ] || mount --bind "$here/build" "$root/opt/built"
    exec chroot "$root" env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" \
      bash -c "cd $here && exec bash /root/typed.sh"' - "$root" "$here" "${COMPILE:-}${folder:+packages}" "${pip_places[*]}" "${variables[@]}"
}

# typed LINE, in the root: the page's line, echoed and run. build/ is there for the lines that make it or install what it holds, and away
# again after them.
prelude="compile=${COMPILE:-} folder=$folder suite="'
with_build() {
  mkdir -p build && mount --bind /opt/built build && eval "$1" && umount build && rmdir build
}
typed() {
  printf "%s  $ %s\n" "$(date +%T)" "$1"
  local run=eval
  case $1 in
    scripts/build_wheel.sh* | "cmake --install"*) run=with_build ;;
    scripts/setup.sh*) [[ -z $compile ]] || run=with_build ;;
  esac
  if [[ -n $folder || $suite == trixie ]]; then
    case $1 in scripts/*) return ;; esac  # the wheel is in dist/
  fi
  [[ -z $folder || $1 != "cmake --install"* ]] || set -- "dpkg -i /opt/packages/*.deb"
  # Packages hold no libtrigen.a, as the page says.
  [[ -z $folder || $1 != *-static* ]] || { ! pkg-config --exists trigen-static; return; }
  "$run" "$1" || { echo "test_newcomer: failed: $1" >&2; exit 1; }
  case $1 in scripts/setup.sh*) rm -rf build ;; esac
}
set -u
'
page() { python3 scripts/page_commands.py "$1" "$2"; }
unset_check='for name in $(compgen -e TRIGEN_); do echo "test_newcomer: $name is set" >&2; exit 1; done'

for suite in $suites; do
  packages=python3-venv,g++,cmake,make,pkg-config,zlib1g-dev
  [[ $suite != bookworm || -n $folder ]] || packages=  # scripts/setup.sh brings them
  say "$suite: a bare root"
  make_root "$suite" "$packages"
  root=$work/$suite
  if [[ -n $folder ]]; then
    mkdir -p "$root/opt/packages"
    cp "${debs[@]}" "$root/opt/packages/"
    cp "$wheel" "$root$here/dist/"
  elif [[ $suite != bookworm ]]; then
    cp "$work/bookworm$here"/dist/trigen-*.whl "$root$here/dist/" || fail "$suite takes the wheel that bookworm makes: SUITES=\"bookworm $suite\""
  fi
  start="${prelude/suite=/suite=$suite}$unset_check"
  say "$suite: README.md, the lines"
  inside "$suite" "$start
$(page sh README.md)"
  say "$suite: PyTorch and JAX"
  inside "$suite" 'set -e; . env/bin/activate; site=$(python -c "import site; print(site.getsitepackages()[0])")
there=/opt/python-venv/lib/$(basename "$(dirname "$site")")/site-packages
version=$(apt-cache show python3-torch 2>/dev/null | sed -n "s/^Version: //p" | head -1)
if [[ -d $there/torch && -d $there/jax ]]; then
  echo "$there" >"$site/here.pth"
elif dpkg --compare-versions "${version:-0}" ge 2.4; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch >/dev/null 2>&1
  echo /usr/lib/python3/dist-packages >"$site/debian.pth"
else
  pip install --quiet torch
fi
python -c "import jax" 2>/dev/null || pip install --quiet jax
python -c "import jax, torch; print(torch.__version__, jax.__version__)"'
  say "$suite: README.md, Python"
  page python README.md >"$root/root/readme.py"
  inside "$suite" "$start; . env/bin/activate; python /root/readme.py"
  for tutorial in docs/tutorials/*.md; do
    say "$suite: $tutorial"
    page python "$tutorial" >"$root/root/tutorial.py"
    # The C tutorial has a compiler of its own in the prefix; with packages NVRTC is the environment's.
    activate='. env/bin/activate'
    [[ $tutorial != */c.md || -n $folder ]] || activate='rm -rf /root/.cache'
    inside "$suite" "$start; $activate
$(page sh "$tutorial")
if [[ -s /root/tutorial.py && \$(wc -w </root/tutorial.py) != 0 ]]; then python /root/tutorial.py; fi"
  done
  rm -rf --one-file-system "$root$here/build"
done
say "every line worked"
