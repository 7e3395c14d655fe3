#!/usr/bin/env bash
# Builds consumer.sys, and one more image for each patch in wrong/, on Debian.
#
#   samples/consumer-c/build.sh [--compiler clang|mingw] [--out FOLDER] [--only NAME]
#
# clang (with lld) makes images with Control Flow Guard and a PDB. mingw-w64's compiler makes images with DWARF in them.
# Names: consumer.sys, and consumer-NAME.sys for wrong/NAME.patch. Needs: clang lld llvm, or gcc-mingw-w64-x86-64-win32; and the
# headers of mingw-w64-x86-64-dev; patch. The image of a Windows kit: README.md.
# NDK_INCLUDE names the folder with ndkpi.h, MINGW_INCLUDE the one of mingw-w64's headers, OUT where the images go.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
if [[ -f $here/include/ndkpi.h || ! -f $root/crates/abi/ndkpi/include/ndkpi.h ]]; then
    # Copied out of SoftNDK's repository.
    ndk=${NDK_INCLUDE:-$here/include} out=${OUT:-$here/build}
else
    root=$(cd "$root" && pwd)
    ndk=${NDK_INCLUDE:-$root/crates/abi/ndkpi/include} out=${OUT:-$root/target/consumer-c}
fi
[[ -f $ndk/ndkpi.h ]] || { echo "$ndk has no ndkpi.h: NDK_INCLUDE names the folder that has (crates/abi/ndkpi/include of SoftNDK)" >&2; exit 1; }
compiler=clang only=

while (($# > 0)); do
    case $1 in
    --compiler) compiler=${2:?clang or mingw} && shift 2 ;;
    --out) out=${2:?a folder} && shift 2 ;;
    --only) only=${2:?right, or the name of a patch} && shift 2 ;;
    *) echo "usage: build.sh [--compiler clang|mingw] [--out FOLDER] [--only NAME]" >&2 && exit 2 ;;
    esac
done

missing=()
# need PROGRAM PACKAGE
need() { command -v "$1" >/dev/null || missing+=("$2"); }
headers=${MINGW_INCLUDE:-/usr/share/mingw-w64/include}
[[ -f $headers/ddk/ntddk.h ]] || missing+=(mingw-w64-x86-64-dev)
need patch patch
case $compiler in
clang) need clang clang && need lld-link lld && need llvm-dlltool llvm ;;
mingw) need x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64-win32 ;;
*) echo "--compiler is $compiler: clang or mingw" >&2 && exit 2 ;;
esac
((${#missing[@]} == 0)) || { echo "missing: apt-get install ${missing[*]}" >&2 && exit 1; }

flags=(-std=c11 -O2 -Wall -Wextra -ffreestanding -fno-builtin -fno-strict-aliasing)
includes=(-include "$here/mingw.h" -I "$here" -I "$ndk" -isystem "$headers/ddk" -isystem "$headers")
mkdir -p "$out"
case $compiler in
clang)
    flags+=(-target x86_64-pc-windows-msvc -fms-extensions -fgnuc-version=4.2.1 -g -gcodeview -Xclang -cfguard -fstack-protector-strong)
    for library in ntoskrnl netio; do
        llvm-dlltool -m i386:x86-64 -d "$here/$library.def" -l "$out/$library.lib"
    done
    ;;
mingw)
    flags+=(-g -fno-stack-protector -mno-stack-arg-probe)
    for library in ntoskrnl netio; do
        x86_64-w64-mingw32-dlltool -d "$here/$library.def" -l "$out/lib$library.a"
    done
    ;;
esac

# build NAME SOURCE: NAME.sys
build() {
    local name=$1 source=$2
    if [[ $compiler == clang ]]; then
        clang "${flags[@]}" "${includes[@]}" -c "$source" -o "$out/$name.obj"
        clang "${flags[@]}" -c "$here/support.c" -o "$out/support.obj"
        lld-link /NOLOGO /DRIVER /SUBSYSTEM:NATIVE /ENTRY:DriverEntry /NODEFAULTLIB /NXCOMPAT /DYNAMICBASE /GUARD:CF \
            /DEBUG /PDB:"$out/$name.pdb" /PDBALTPATH:"$name.pdb" /OUT:"$out/$name.sys" "$out/$name.obj" "$out/support.obj" "$out/ntoskrnl.lib" "$out/netio.lib"
    else
        x86_64-w64-mingw32-gcc "${flags[@]}" "${includes[@]}" -c "$source" -o "$out/$name.o"
        x86_64-w64-mingw32-gcc "${flags[@]}" -nostdlib -shared -Wl,--subsystem,native -Wl,--entry,DriverEntry \
            -Wl,--image-base,0x140000000 -Wl,--dynamicbase -Wl,--nxcompat -Wl,--exclude-all-symbols \
            -o "$out/$name.sys" "$out/$name.o" "$here/support.c" -L "$out" -lntoskrnl -lnetio
    fi
    echo "$out/$name.sys"
}

sources=$out/sources
mkdir -p "$sources"
[[ -n $only && $only != right ]] || build consumer "$here/consumer.c"
for patch in "$here"/wrong/*.patch; do
    [[ -f $patch ]] || continue
    name=$(basename "$patch" .patch)
    [[ -z $only || $only == "$name" ]] || continue
    patch --silent --output="$sources/$name.c" "$here/consumer.c" "$patch"
    # A function that is inlined has no stack of its own that would be gone when it returns.
    [[ " ${flags[*]} " == *" -fno-inline "* ]] || flags+=(-fno-inline)
    build "consumer-$name" "$sources/$name.c"
done
