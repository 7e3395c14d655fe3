//! `ndkctl info`: what the adapter says of itself, and what objects take in the driver.

use conformance::host::{HostPlatform, Setup};
use conformance::{
    HELD,
    client::{Options, Session},
};
use host::say;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED,
    NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, NDK_ADAPTER_INFO, NDK_VERSION,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    End,
    args::Info,
    output::{align_right, bytes, keep_whole, print_json, print_table, table},
};

/// What an object takes of the non-paged pool. The table is that of the driver's build, where a test counts what the pool gives
/// (`tests-host/kernel-tests/tests/driver_runs/memory.rs`).
#[derive(Clone, Debug, Deserialize)]
struct Cost {
    object: String,
    parameters: String,
    /// The depth of each queue times what an entry takes (a completion; a request with all its elements and inline bytes), or
    /// pages times the size of an address.
    entries: u64,
    bytes: u64,
}

impl Cost {
    /// How much more the object takes than its entries, if it has any.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn ratio(&self) -> Option<f64> {
        (self.entries != 0).then(|| self.bytes as f64 / self.entries as f64)
    }
}

/// Runs the command.
pub fn run(args: &Info) -> Result<End, String> {
    let platform = HostPlatform::start(Setup { profile: args.profile.0, ..Setup::default() })
        .map_err(|status| format!("no machine: {status}"))?;
    let version = args.profile.version(args.ndkpi)?;
    let options = Options { name: "info", version, seed: 0, hostile: false };
    let mut found = None;
    let verdict = Session::with(&platform, &options, |session| {
        found = Some((*session.info()?, session.version()?));
        HELD
    });
    let ended = platform.finish();
    let (info, version) = match (verdict, found) {
        (Ok(_), Some(found)) => found,
        (Err(stop), _) => return Err(stop.text().to_owned()),
        (Ok(_), None) => return Err("the adapter says nothing".to_owned()),
    };
    ended?;
    let costs = args.memory.then(costs).transpose()?;
    if args.json {
        print_json(&as_json(&info, version, costs.as_deref()))?;
    } else {
        print(&info, version, costs.as_deref());
    }
    Ok(End::Good)
}

/// The memory that each object takes in the driver.
fn costs() -> Result<Vec<Cost>, String> {
    serde_json::from_str(include_str!("driver_memory.json")).map_err(|error| format!("the table of objects: {error}"))
}

/// The fields in order: name, value, meaning.
fn fields(info: &NDK_ADAPTER_INFO) -> Vec<(&'static str, Value, String, &'static str)> {
    let number = |value: u32| (json!(value), value.to_string());
    let size = |value: usize| (json!(value), bytes(value as u64));
    let length = |value: u32| (json!(value), bytes(value.into()));
    let hex = |value: u32| (json!(value), format!("{value:#010x}"));
    [
        ("VendorId", hex(info.VendorId), "who made it"),
        ("DeviceId", hex(info.DeviceId), "what it is"),
        ("MaxRegistrationSize", size(info.MaxRegistrationSize), "a memory region"),
        ("MaxWindowSize", size(info.MaxWindowSize), "a memory window"),
        ("FRMRPageCount", number(info.FRMRPageCount), "pages of a fast registration"),
        ("MaxInitiatorRequestSge", number(info.MaxInitiatorRequestSge), "elements of an initiator request"),
        ("MaxReceiveRequestSge", number(info.MaxReceiveRequestSge), "elements of a receive"),
        ("MaxReadRequestSge", number(info.MaxReadRequestSge), "elements of a read"),
        ("MaxTransferLength", length(info.MaxTransferLength), "one request"),
        ("MaxInlineDataSize", length(info.MaxInlineDataSize), "inline in one send or write"),
        ("MaxInboundReadLimit", number(info.MaxInboundReadLimit), "reads of the peer in progress"),
        ("MaxOutboundReadLimit", number(info.MaxOutboundReadLimit), "own reads in progress"),
        ("MaxReceiveQueueDepth", number(info.MaxReceiveQueueDepth), "receives outstanding"),
        ("MaxInitiatorQueueDepth", number(info.MaxInitiatorQueueDepth), "initiator requests outstanding"),
        ("MaxSrqDepth", number(info.MaxSrqDepth), "receives in a shared receive queue"),
        ("MaxCqDepth", number(info.MaxCqDepth), "entries of a completion queue"),
        ("LargeRequestThreshold", length(info.LargeRequestThreshold), "above it, read and write beat send"),
        ("MaxCallerData", length(info.MaxCallerData), "private data of a connect"),
        ("MaxCalleeData", length(info.MaxCalleeData), "private data of an accept or reject"),
        ("RdmaTechnology", (json!(info.RdmaTechnology.0), format!("{:?}", info.RdmaTechnology)), "the protocol below"),
    ]
    .into_iter()
    .map(|(name, (value, text), meaning)| (name, value, text, meaning))
    .collect()
}

const FLAGS: [(u32, &str); 7] = [
    (NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, "IN_ORDER_DMA_SUPPORTED"),
    (NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, "RDMA_READ_SINK_NOT_REQUIRED"),
    (NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, "CQ_INTERRUPT_MODERATION_SUPPORTED"),
    (NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, "MULTI_ENGINE_SUPPORTED"),
    (NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED, "RDMA_READ_LOCAL_INVALIDATE_SUPPORTED"),
    (NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, "CQ_RESIZE_SUPPORTED"),
    (NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, "LOOPBACK_CONNECTIONS_SUPPORTED"),
];

/// The names of the flags that are set.
pub fn flags(set: u32) -> Vec<&'static str> {
    FLAGS.iter().filter(|(flag, _)| set & flag != 0).map(|(_, name)| *name).collect()
}

fn print(info: &NDK_ADAPTER_INFO, version: NDK_VERSION, costs: Option<&[Cost]>) {
    let mut list = table(&["NDK_ADAPTER_INFO", "value", "of"]);
    list.add_row(["Version".to_owned(), version.to_string(), "the version in force".to_owned()]);
    for (name, _, text, meaning) in fields(info) {
        list.add_row([name.to_owned(), text, meaning.to_owned()]);
    }
    for (row, name) in flags(info.AdapterFlags).into_iter().enumerate() {
        let heading = if row == 0 { "AdapterFlags" } else { "" };
        list.add_row([heading, name, ""]);
    }
    keep_whole(&mut list, 1);
    print_table(&list);
    if let Some(costs) = costs {
        say!();
        let mut list = table(&["object in the driver", "with", "entries", "bytes", "ratio"]);
        for cost in costs {
            let ratio = cost.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let [entries, bytes] = [cost.entries, cost.bytes].map(|bytes| bytes.to_string());
            list.add_row([cost.object.clone(), cost.parameters.clone(), entries, bytes, ratio]);
        }
        (2..5).for_each(|column| align_right(&mut list, column));
        print_table(&list);
    }
}

fn as_json(info: &NDK_ADAPTER_INFO, version: NDK_VERSION, costs: Option<&[Cost]>) -> Value {
    let mut map = Map::new();
    map.insert("Version".to_owned(), json!(version.to_string()));
    for (name, value, _, _) in fields(info) {
        map.insert(name.to_owned(), value);
    }
    map.insert("AdapterFlags".to_owned(), json!(flags(info.AdapterFlags)));
    if let Some(costs) = costs {
        let costs = costs.iter().map(|cost| {
            let Cost { object, parameters, entries, bytes } = cost;
            json!({ "object": object, "with": parameters, "entries": entries, "bytes": bytes, "ratio": cost.ratio() })
        });
        map.insert("memory".to_owned(), costs.collect());
    }
    Value::Object(map)
}
