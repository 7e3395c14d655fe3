//! What all objects have in common: headers, tables, requests and the layer of the operating system (`NDKPI 3`, `4`, `5.0`,
//! `7.10`).

use core::fmt::{self, Display, Formatter};

use ndkpi::{
    GUID, NDK_CONNECTOR_DISPATCH, NDK_CQ_DISPATCH, NDK_LISTENER_DISPATCH, NDK_MR_DISPATCH, NDK_MW_DISPATCH,
    NDK_PD_DISPATCH, NDK_QP_DISPATCH, NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ_DISPATCH, NDK_VERSION, NtStatus,
};

use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{CompletionKind, Connector, Cq, Listener, Mr, Mw, Pd, Qp, RawAddress, Session, SharedEndpoint, Srq},
    fixture::{Pair, Plan, Terms},
    platform::Family,
};

pub const CASES: &[Case] = &[
    Case::new(
        "object.headers",
        "NDKPI 3.3",
        "Creates an object of every kind and looks at its header.",
        "Its version and type, and a reserved block of zeros.",
        headers,
    ),
    Case::new(
        "object.tables-are-complete",
        "NDKPI 4",
        "Creates an object of every kind and looks at the slots that its version has.",
        "None is NULL.",
        tables_are_complete,
    ),
    Case::new(
        "object.unknown-extension",
        "NDKPI 5.1",
        "Asks an object of every kind for an extension that does not exist.",
        "STATUS_NOT_SUPPORTED.",
        unknown_extension,
    ),
    //= NDKPI 7.10.1
    Case::new(
        "object.layer-of-the-operating-system",
        "NDKPI 7.10",
        "Points Dispatch of every object to a copy of its table and writes to its reserved block; then connects, sends, \
         disconnects and closes.",
        "It works, and both are as they were left.",
        layer_of_the_operating_system,
    ),
    Case::new(
        "object.requests-complete-once",
        "NDKPI 5.0",
        "Creates and closes objects of every kind and makes requests on them, and waits for what might come later.",
        "Each request that pends completes once, the others not at all. Open: which way they complete.",
        requests_complete_once,
    ),
    Case::new(
        "object.create-and-close",
        "NDKPI 7.9",
        "Creates and closes each kind of object fifty times.",
        "It works each time.",
        create_and_close,
    ),
];

/// One object of each kind that needs no connection.
struct Zoo<'s> {
    mr: Mr<'s>,
    mw: Mw<'s>,
    qp: Qp<'s>,
    srq: Option<Srq<'s>>,
    connector: Connector<'s>,
    listener: Listener<'s>,
    endpoint: SharedEndpoint<'s>,
    cq: Cq<'s>,
    pd: Pd<'s>,
}

impl<'s> Zoo<'s> {
    fn new(s: &'s Session<'s>) -> Check<Self> {
        let adapter = s.adapter()?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
        let (mr, mw) = (pd.core().create_mr(true)?, pd.core().create_mw()?);
        let qp = pd.core().create_qp(cq.core(), cq.core(), 0, Plan::new().sizes)?;
        let srq = match adapter.info().MaxSrqDepth {
            0 => None,
            _ => Some(
                pd.core()
                    .try_create_srq(4, 1, 0, None, true)?
                    .map_err(|status| Stop::status("NdkCreateSrq", status))?,
            ),
        };
        let (connector, listener) = (adapter.create_connector()?, adapter.create_listener(None)?);
        let address = RawAddress::new(s.address(0, Family::V4, 0)?);
        let endpoint = adapter.try_create_shared_endpoint(&address)?;
        let endpoint = endpoint.map_err(|status| Stop::status("NdkCreateSharedEndpoint", status))?;
        Ok(Self { mr, mw, qp, srq, connector, listener, endpoint, cq, pd })
    }

    fn close(self) -> Check {
        let Self { mr, mw, qp, srq, connector, listener, endpoint, cq, pd } = self;
        mr.close()?;
        mw.close()?;
        qp.close()?;
        if let Some(srq) = srq {
            srq.close()?;
        }
        connector.close()?;
        listener.close()?;
        endpoint.close()?;
        cq.close()?;
        pd.close()?;
        Ok(())
    }
}

/// Does the same with every object of a [`Zoo`] and the number of slots that its table has.
macro_rules! each {
    ($zoo:expr, $version:expr, |$object:ident, $slots:ident, $name:ident| $work:expr) => {{
        each!(@ $zoo.mr, NDK_MR_DISPATCH, size_of::<NDK_MR_DISPATCH>(), $object, $slots, $name, $work);
        each!(@ $zoo.mw, NDK_MW_DISPATCH, size_of::<NDK_MW_DISPATCH>(), $object, $slots, $name, $work);
        each!(@ $zoo.qp, NDK_QP_DISPATCH, NDK_QP_DISPATCH::size_in($version), $object, $slots, $name, $work);
        if let Some(srq) = &$zoo.srq {
            each!(@ srq, NDK_SRQ_DISPATCH, size_of::<NDK_SRQ_DISPATCH>(), $object, $slots, $name, $work);
        }
        let connector = NDK_CONNECTOR_DISPATCH::size_in($version);
        each!(@ $zoo.connector, NDK_CONNECTOR_DISPATCH, connector, $object, $slots, $name, $work);
        each!(@ $zoo.listener, NDK_LISTENER_DISPATCH, size_of::<NDK_LISTENER_DISPATCH>(), $object, $slots, $name, $work);
        let endpoint = size_of::<NDK_SHARED_ENDPOINT_DISPATCH>();
        each!(@ $zoo.endpoint, NDK_SHARED_ENDPOINT_DISPATCH, endpoint, $object, $slots, $name, $work);
        each!(@ $zoo.cq, NDK_CQ_DISPATCH, NDK_CQ_DISPATCH::size_in($version), $object, $slots, $name, $work);
        each!(@ $zoo.pd, NDK_PD_DISPATCH, size_of::<NDK_PD_DISPATCH>(), $object, $slots, $name, $work);
    }};
    (@ $zoo:expr, $table:ident, $size:expr, $object:ident, $slots:ident, $name:ident, $work:expr) => {{
        let ($object, $slots, $name) = (&$zoo, $size / size_of::<usize>(), stringify!($table));
        $work;
    }};
}

fn headers(s: &Session<'_>) -> Verdict {
    // Whoever adopts an object looks at its header; what is wrong is a fault.
    let zoo = Zoo::new(s)?;
    let pair = Pair::new(s)?;
    drop(pair);
    zoo.close()?;
    HELD
}

fn tables_are_complete(s: &Session<'_>) -> Verdict {
    let (zoo, version) = (Zoo::new(s)?, s.version()?);
    each!(zoo, version, |object, slots, name| {
        if let Some(slot) = object.null_slot(slots)? {
            fail!("slot {slot} of an {name} is NULL");
        }
    });
    HELD
}

fn unknown_extension(s: &Session<'_>) -> Verdict {
    let id = GUID::from_u128(0x0BAD_CAFE_0000_4000_8000_0123_4567_89AB);
    let (zoo, version) = (Zoo::new(s)?, s.version()?);
    for asked in [NDK_VERSION::new(1, 0), NDK_VERSION::new(0, 0), NDK_VERSION::new(u16::MAX, u16::MAX)] {
        let status = s.adapter()?.query_extension(&id, asked)?;
        ensure_eq!(status, NtStatus::NOT_SUPPORTED, "NdkQueryExtension of an NDK_ADAPTER_DISPATCH");
        each!(zoo, version, |object, slots, name| {
            let _ = slots;
            let status = object.query_extension(&id, asked)?;
            ensure_eq!(status, NtStatus::NOT_SUPPORTED, "NdkQueryExtension of an {name}");
        });
    }
    HELD
}

fn layer_of_the_operating_system(s: &Session<'_>) -> Verdict {
    let version = s.version()?;
    let (queue, pair, line) = (
        NDK_CQ_DISPATCH::size_in(version) / size_of::<usize>(),
        NDK_QP_DISPATCH::size_in(version) / size_of::<usize>(),
        NDK_CONNECTOR_DISPATCH::size_in(version) / size_of::<usize>(),
    );
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    for side in [&a, &b] {
        side.receive_cq.interpose(queue)?;
        side.pd.interpose(size_of::<NDK_PD_DISPATCH>() / size_of::<usize>())?;
        side.region.mr.interpose(size_of::<NDK_MR_DISPATCH>() / size_of::<usize>())?;
    }
    let copies = [a.qp.interpose(pair)?, b.qp.interpose(pair)?];
    let watched = b.receive_cq.interpose(queue)?;
    let connection = Pair::join(s, a, b, &Terms::new())?;
    let active = connection.link.a.interpose(line)?;
    connection.link.b.interpose(line)?;
    connection.link.listener.interpose(size_of::<NDK_LISTENER_DISPATCH>() / size_of::<usize>())?;
    connection.b.receive_cq.arm(ndkpi::NDK_CQ_NOTIFY_ANY)?;
    for number in 0..5 {
        connection.deliver(number, true)?;
        connection.b.receive_done(number)?;
    }
    connection.b.receive_cq.wait_callbacks(1)?;
    connection.a.write(9, 0, 64, connection.b.remote(0), 0)?;
    connection.a.initiator_done(9)?;
    connection.link.a.core().disconnect()?.succeeds()?;
    connection.link.b.wait_disconnect()?;
    connection.a.qp.is_interposed(copies[0])?;
    connection.b.qp.is_interposed(copies[1])?;
    connection.b.receive_cq.is_interposed(watched)?;
    connection.link.a.is_interposed(active)?;
    let Pair { link, a, b } = connection;
    link.a.close()?;
    link.b.close()?;
    a.qp.close()?;
    b.qp.close()?;
    HELD
}

fn requests_complete_once(s: &Session<'_>) -> Verdict {
    for _ in 0..5 {
        let zoo = Zoo::new(s)?;
        zoo.mr.core().initialize(4, true)?.succeeds()?;
        zoo.listener.core().listen(s.address(0, Family::V4, 0)?)?.succeeds()?;
        if s.adapter()?.has(ndkpi::NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED) {
            zoo.cq.core().resize(100)?.succeeds()?;
        }
        if let Some(srq) = &zoo.srq {
            srq.core().modify(8, 0)?.succeeds()?;
        }
        let pair = Pair::new(s)?;
        pair.b.region.mr.core().deregister()?.succeeds()?;
        pair.link.a.core().disconnect()?.succeeds()?;
        zoo.close()?;
        s.settle();
    }
    observed!("{}", Ways(s))
}

/// The ways in which requests have completed. How often each was met differs from run to run, and says nothing of the adapter.
struct Ways<'a>(&'a Session<'a>);

impl Display for Ways<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let words = [
            (CompletionKind::Inline, "in the call"),
            (CompletionKind::Early, "by a callback before it returned"),
            (CompletionKind::Later, "by a callback after it"),
        ];
        let seen = words.into_iter().filter(|&(kind, _)| self.0.completions_of(kind) > 0);
        seen.enumerate().try_for_each(|(index, (_, way))| {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(way)
        })
    }
}

fn create_and_close(s: &Session<'_>) -> Verdict {
    for _ in 0..50 {
        Zoo::new(s)?.close()?;
    }
    HELD
}
