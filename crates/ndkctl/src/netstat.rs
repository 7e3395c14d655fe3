//! `ndkctl netstat`: connections and local endpoints, as the NDK OIDs list them, beside traffic of this program.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use engine::connection::EndpointKind;
use serde::Serialize;

use crate::{
    End,
    args::Netstat,
    load,
    output::{print_json, print_table, table},
};

/// One line.
#[derive(Clone, Debug, Serialize)]
struct Row {
    adapter: usize,
    kind: &'static str,
    local: String,
    remote: String,
    owner: String,
}

/// Lists what is there once.
///
/// # Errors
///
/// What went wrong.
pub fn run(args: &Netstat, interrupted: &AtomicBool) -> Result<End, String> {
    load::beside(interrupted, |platform| {
        let mut rows = Vec::new();
        for (adapter, device) in platform.devices().iter().enumerate() {
            let owner =
                |process: Option<u32>| process.map_or_else(|| "kernel".to_owned(), |id| format!("process {id}"));
            device.port().endpoints(|entry| {
                let kind = match entry.kind {
                    EndpointKind::Listener => "listener",
                    EndpointKind::Shared => "shared endpoint",
                };
                let (local, owner) = (entry.local.to_string(), owner(entry.owner.process));
                rows.push(Row { adapter, kind, local, remote: String::new(), owner });
                Ok::<_, String>(())
            })?;
            device.port().connections(|entry| {
                let (local, remote) = (entry.local.to_string(), entry.remote.to_string());
                rows.push(Row { adapter, kind: "connection", local, remote, owner: owner(entry.owner.process) });
                Ok::<_, String>(())
            })?;
        }
        if args.json {
            print_json(&rows)?;
        } else {
            let mut table = table(&["adapter", "kind", "local", "remote", "owner"]);
            for row in rows {
                table.add_row([row.adapter.to_string(), row.kind.to_owned(), row.local, row.remote, row.owner]);
            }
            print_table(&table);
        }
        Ok(false)
    })?;
    Ok(if interrupted.load(Relaxed) { End::Interrupted } else { End::Good })
}
