//! The guest: a kernel of Debian's with rxe, and a root of its packages that begins with tools/rxe-init.sh.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use xshell::cmd;

use crate::context::{Context, Needed, absolute, files, variable};

const NEEDED: [Needed; 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("readelf", "binutils"),
];

/// The packages of the programs, and of the libraries that they need.
const PACKAGES: &str = "busybox-static iproute2 rdmacm-utils ibverbs-utils ibverbs-providers librdmacm1 libibverbs1 libnl-3-200 \
    libnl-route-3-200 libc6 libmnl0 libelf1 libbpf1 libcap2 libbsd0 libmd0 libselinux1 libpcre2-8-0 libtirpc3 libxtables12 zlib1g \
    libgcc-s1 perftest libibumad3 libpci3 libudev1 libdb5.3 libzstd1 liblzma5 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1";

const PROGRAMS: [&str; 13] = [
    "bin/busybox",
    "bin/ip",
    "usr/bin/rdma",
    "usr/bin/rping",
    "usr/bin/ucmatose",
    "usr/bin/ibv_rc_pingpong",
    "usr/bin/ib_send_bw",
    "usr/bin/ib_write_bw",
    "usr/bin/ib_read_bw",
    "usr/bin/ib_send_lat",
    "usr/bin/ib_write_lat",
    "usr/bin/ib_read_lat",
    "lib/x86_64-linux-gnu/libgcc_s.so.1",
];

const MODULES: [&str; 9] = [
    "crc32_generic",
    "crc32-pclmul",
    "virtio_pci",
    "virtio_net",
    "vxlan",
    "rdma_rxe",
    "rdma_ucm",
    "nvmet-rdma",
    "veth",
];

const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

const FOLDERS: [&str; 9] = ["bin", "proc", "sys", "dev", "tmp", "run", "modules", "lib64", "etc/libibverbs.d"];

/// What QEMU starts.
pub struct Guest {
    pub kernel: PathBuf,
    pub root: PathBuf,
}

/// Makes the guest, unless it is there.
pub fn make(context: &Context) -> Result<Guest> {
    context.need(&NEEDED)?;
    let sh = &context.sh;
    let image = match variable("IMAGE") {
        Some(named) => named,
        None => newest_kernel(&cmd!(sh, "apt-cache depends linux-image-amd64").quiet().read()?)?,
    };
    let folder = absolute("target/rxe");
    let guest = Guest {
        kernel: folder.join(format!("{image}.vmlinuz")),
        root: folder.join(format!("{image}-{}.cpio", recipe(context)?)),
    };
    if guest.kernel.is_file() && guest.root.is_file() {
        return Ok(guest);
    }
    let version = image.strip_prefix("linux-image-").context("IMAGE names no package linux-image-...")?;
    let scratch = sh.create_temp_dir()?;
    let within = |name: &str| scratch.path().join(name);
    let (debs, packages, kernel, root) = (within("debs"), within("packages"), within("kernel"), within("root"));
    for made in [&debs, &packages, &kernel, &folder] {
        sh.create_dir(made)?;
    }
    for made in FOLDERS {
        sh.create_dir(root.join(made))?;
    }
    {
        let _folder = sh.push_dir(&debs);
        let names = PACKAGES.split_whitespace();
        cmd!(sh, "apt-get download -qq {image} {names...}").run()?;
    }
    for package in files(&debs)? {
        if package.file_name().unwrap_or_default().to_string_lossy().starts_with("linux-image") {
            cmd!(sh, "dpkg-deb -x {package} {kernel}").quiet().run()?;
        } else {
            cmd!(sh, "dpkg-deb -x {package} {packages}").quiet().run()?;
        }
    }
    cmd!(sh, "depmod -b {kernel} {version}").quiet().run()?;
    sh.copy_file(packages.join("etc/libibverbs.d/rxe.driver"), root.join("etc/libibverbs.d"))?;
    sh.copy_file(packages.join("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), root.join("lib64"))?;
    copy_programs(context, &packages, &root)?;
    copy_modules(context, &kernel, version, &root.join("modules"))?;
    let (source, init) = (absolute("tools/rxe-init.sh"), root.join("init"));
    cmd!(sh, "install -m 755 {source} {init}").quiet().run()?;
    sh.copy_file(kernel.join("boot").join(format!("vmlinuz-{version}")), &guest.kernel)?;
    pack(context, &root, &guest.root)?;
    Ok(guest)
}

/// The package of the distribution's own kernel.
fn newest_kernel(depends: &str) -> Result<String> {
    let depends = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(depends.context("apt-cache knows no kernel: apt-get update")?.trim().to_owned())
}

/// Changes when the guest has to be made anew.
fn recipe(context: &Context) -> Result<String> {
    let sh = &context.sh;
    let text = [PACKAGES, &PROGRAMS.join(" "), &MODULES.join(" "), &sh.read_file("tools/rxe-init.sh")?].join("\n");
    let digest = cmd!(sh, "sha256sum").stdin(text).quiet().read()?;
    Ok(digest.chars().take(8).collect())
}

/// Makes an archive of a folder, as the kernel reads it at its start.
pub fn pack(context: &Context, folder: &Path, archive: &Path) -> Result<()> {
    let sh = &context.sh;
    let _folder = sh.push_dir(folder);
    let names = cmd!(sh, "find .").quiet().read()?;
    let part = archive.with_extension("part");
    cmd!(sh, "cpio -o -H newc --quiet -O {part}").stdin(names).quiet().run()?;
    Ok(cmd!(sh, "mv {part} {archive}").quiet().run()?)
}

/// Copies programs and the libraries they need from the unpacked packages to the guest's root.
fn copy_programs(context: &Context, from: &Path, to: &Path) -> Result<()> {
    let sh = &context.sh;
    let mut todo: Vec<_> = PROGRAMS.map(PathBuf::from).into();
    let providers = Path::new("usr/lib/x86_64-linux-gnu/libibverbs");
    let names = files(&from.join(providers))?;
    let names = names.iter().filter_map(|file| file.file_name());
    todo.extend(names.filter(|name| name.to_string_lossy().starts_with("librxe")).map(|name| providers.join(name)));
    while let Some(file) = todo.pop() {
        let (source, target) = (from.join(&file), to.join(&file));
        if target.exists() {
            continue;
        }
        sh.create_dir(target.parent().context("a folder")?)?;
        sh.copy_file(&source, &target)?;
        // What is no program has no such section.
        let section = cmd!(sh, "readelf -d {source}").quiet().ignore_stderr().ignore_status().read()?;
        for library in
            section.lines().filter(|line| line.contains("NEEDED")).filter_map(|line| line.split(['[', ']']).nth(1))
        {
            let found =
                LIBRARIES.iter().map(|folder| Path::new(folder).join(library)).find(|file| from.join(file).exists());
            todo.extend(found);
        }
    }
    Ok(())
}

/// Copies modules, and for each the list of those that must be loaded before it.
fn copy_modules(context: &Context, from: &Path, version: &str, to: &Path) -> Result<()> {
    let sh = &context.sh;
    for module in MODULES {
        let depends = cmd!(sh, "modprobe -S {version} -d {from} --show-depends {module}").quiet().read()?;
        let mut names = String::new();
        for path in depends.lines().filter_map(|line| line.strip_prefix("insmod ")).map(|path| Path::new(path.trim())) {
            let packed = path.extension().is_some_and(|end| end == "xz");
            let name = if packed { path.file_stem() } else { path.file_name() }.context("a module has a name")?;
            _ = writeln!(names, "{}", name.display());
            if packed {
                let unpacked = cmd!(sh, "xz -dc {path}").quiet().output()?.stdout;
                sh.write_file(to.join(name), unpacked)?;
            } else {
                sh.copy_file(path, to.join(name))?;
            }
        }
        sh.write_file(to.join(format!("{module}.list")), names)?;
    }
    Ok(())
}
