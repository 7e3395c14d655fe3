//! `ndkctl netstat`: connections of the driver's adapters; or connections and local endpoints of this program's adapters under
//! traffic that it makes, as the NDK OIDs list them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use engine::connection::EndpointKind;
use host::say;
use serde::Serialize;

use crate::{
    End,
    args::Netstat,
    driver, load,
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

/// Prints the list. The driver does not tell its adapters apart (all are 0) and lists no endpoints.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &Netstat, interrupted: &AtomicBool) -> Result<End, String> {
    let owner = |process: Option<u32>| process.map_or_else(|| "kernel".to_owned(), |id| format!("process {id}"));
    let mut rows = Vec::new();
    let (provider, whose) = driver::provider_or_host(args.of)?;
    if !args.json {
        say!("{whose}");
    }
    if let Some(opened) = provider {
        let all = opened.driver.connections().map_err(|refusal| opened.refused(refusal))?;
        rows.extend(all.into_iter().map(|one| Row {
            adapter: 0,
            kind: "connection",
            local: one.local.to_string(),
            remote: one.remote.to_string(),
            owner: owner(one.process),
        }));
    } else {
        load::beside(interrupted, |machine| {
            for (adapter, device) in machine.devices().iter().enumerate() {
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
            Ok(false)
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
    Ok(if interrupted.load(Relaxed) { End::Interrupted } else { End::Good })
}
