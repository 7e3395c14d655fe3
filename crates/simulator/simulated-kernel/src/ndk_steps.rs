//! What a consumer of NDK may wait for: which objects are open, which calls have not completed, which completion queues are not armed.
//!
//! The adviser of `softndk` and `softndknic` writes an event for each step (`interpose::adviser::Step`). They are kept here for the words of
//! a wait for ever.

use std::{fmt::Write, sync::Mutex};

use litemap::LiteMap;

use crate::{
    findings::{Field, kind_in_words},
    sites::place_in_words,
    state::{Part, glance, lock},
};

/// As many are named at most.
const MOST: usize = 6;

/// Places of a stack that are named: who called, and who called that.
const PLACES: usize = 2;

/// An object that a consumer has.
#[derive(Debug)]
struct Object {
    name: String,
    /// The keys of what it depends on.
    on: Vec<u64>,
    creator: String,
    /// Its close has begun: it is there until that is over.
    is_closing: bool,
    /// Of a completion queue with a notification callback.
    queue: Option<Queue>,
}

/// A completion queue that is armed, or not.
#[derive(Debug)]
struct Queue {
    /// The callback.
    notification: String,
    armed: Armed,
}

#[derive(Debug)]
enum Armed {
    Never,
    Now,
    /// Not since the callback has returned; who has polled since.
    Not(Option<String>),
}

/// A call that has not completed.
#[derive(Debug)]
struct Call {
    function: String,
    object: String,
    caller: String,
}

#[derive(Debug, Default)]
struct Steps {
    objects: LiteMap<u64, Object>,
    /// By the object and the number of the call.
    calls: LiteMap<(u64, u64), Call>,
}

/// What is known of the consumers of this kernel.
#[derive(Default)]
pub struct NdkSteps(Mutex<Steps>);

impl Part for NdkSteps {}

/// The fields of an event.
pub struct Fields<'a>(pub &'a [(String, Field)]);

impl Fields<'_> {
    fn of(&self, wanted: &str) -> Option<&Field> {
        self.0.iter().find(|(name, _)| name == wanted).map(|(_, value)| value)
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<u64> {
        if let Some(Field::Number(number)) = self.of(name) { Some(*number) } else { None }
    }

    fn numbers(&self, name: &str) -> &[u64] {
        if let Some(Field::Numbers(numbers)) = self.of(name) { numbers } else { &[] }
    }

    fn text(&self, name: &str) -> Option<String> {
        if let Some(Field::Text(text)) = self.of(name) { Some(text.clone()) } else { None }
    }

    /// `Cq 3`.
    fn object(&self) -> Option<String> {
        Some(format!("{} {}", kind_in_words(self.number("ObjectType")?), self.number("Object")?))
    }

    /// Who called, in images.
    pub fn places(&self, name: &str) -> String {
        let places = self.numbers(name).iter().filter_map(|&place| place_in_words(usize::try_from(place).ok()?));
        callers(places.collect()).join(", ")
    }
}

/// The image of a place such as `x.sys+0x10`.
fn image_of(place: &str) -> &str {
    place.split(['+', ':']).next().unwrap_or_default()
}

/// The places of a stack behind those of its first image, which is the provider's own.
fn callers(mut places: Vec<String>) -> Vec<String> {
    let own = places.first().map(|place| image_of(place).to_owned()).unwrap_or_default();
    if let Some(first) = places.iter().position(|place| image_of(place) != own) {
        places.drain(..first);
    }
    places.truncate(PLACES);
    places
}

impl Steps {
    /// An event was written. `None` if it lacks what such an event has.
    fn hear(&mut self, name: &str, fields: &Fields<'_>) -> Option<()> {
        let key = fields.number("Key")?;
        let queue = |steps: &mut Self, change: &dyn Fn(&mut Queue)| {
            if let Some(queue) = steps.objects.get_mut(&key).and_then(|object| object.queue.as_mut()) {
                change(queue);
            }
        };
        match name {
            "NdkOpened" => {
                let notification = fields.number("Notification").filter(|&place| place != 0);
                let notification = notification.and_then(|place| place_in_words(usize::try_from(place).ok()?));
                let queue = notification.map(|notification| Queue { notification, armed: Armed::Never });
                let on = fields.numbers("On").iter().copied().filter(|&key| key != 0).collect();
                let (name, creator) = (fields.object()?, fields.places("Creator"));
                self.objects.insert(key, Object { name, on, creator, is_closing: false, queue });
            }
            "NdkClosing" => self.objects.get_mut(&key)?.is_closing = true,
            "NdkBegan" => {
                let call = Call {
                    function: fields.text("Function")?,
                    object: fields.object()?,
                    caller: fields.places("Caller"),
                };
                self.calls.insert((key, fields.number("Call")?), call);
            }
            "NdkEnded" => {
                self.calls.remove(&(key, fields.number("Call")?));
                if self.objects.get(&key).is_some_and(|object| object.is_closing) {
                    self.objects.remove(&key);
                }
            }
            "NdkUnarmed" => queue(self, &|queue| queue.armed = Armed::Not(None)),
            "NdkArmed" => queue(self, &|queue| queue.armed = Armed::Now),
            "NdkPolled" => {
                let place = fields.places("Caller");
                queue(self, &|queue| {
                    if let Armed::Not(polled) = &mut queue.armed {
                        *polled = Some(place.clone());
                    }
                });
            }
            _ => {}
        }
        Some(())
    }

    /// What may be waited for.
    fn words(&self) -> Vec<String> {
        let calls = self.calls.iter().map(|(&(key, _), call)| {
            let mut words =
                format!("{} of {} has not completed{}", call.function, call.object, at("called", &call.caller));
            let open: Vec<_> =
                self.open_on(key).map(|open| format!("{}{}", open.name, at("created", &open.creator))).collect();
            if self.objects.get(&key).is_some_and(|object| object.is_closing) && !open.is_empty() {
                let _ = write!(words, ": open on it: {}", open.join(", "));
            }
            words
        });
        let unarmed = self.objects.values().filter(|object| !object.is_closing).filter_map(|object| {
            let Queue { notification, armed } = object.queue.as_ref()?;
            let how = match armed {
                Armed::Now => return None,
                Armed::Never => "was never armed".to_owned(),
                Armed::Not(polled) => {
                    let polled =
                        polled.as_ref().map_or_else(|| ", nor polled".to_owned(), |place| at(", polled", place));
                    format!("is not armed since its notification at {notification} returned{polled}")
                }
            };
            Some(format!("{}{} {how}", object.name, at("created", &object.creator)))
        });
        calls.chain(unarmed).collect()
    }

    /// The objects that depend on this one and whose close has not begun.
    fn open_on(&self, key: u64) -> impl Iterator<Item = &Object> {
        self.objects.values().filter(move |object| object.on.contains(&key) && !object.is_closing)
    }
}

/// ` (created at x)`, or nothing if nobody knows.
fn at(what: &str, place: &str) -> String {
    let (sign, what) = what.strip_prefix(", ").map_or((" ", what), |what| (", ", what));
    if place.is_empty() { String::new() } else { format!("{sign}{what} at {place}") }
}

impl NdkSteps {
    /// An event of a provider was written. Those of others are left alone.
    pub fn hear(&self, name: &str, fields: &[(String, Field)]) {
        if name.starts_with("Ndk") {
            let _ = lock(&self.0).hear(name, &Fields(fields));
        }
    }

    /// What a consumer may wait for, for a message; empty if there is nothing.
    pub fn in_words(&self) -> String {
        let mut words = lock(&self.0).words();
        if words.is_empty() {
            return String::new();
        }
        let more = words.len().saturating_sub(MOST);
        words.truncate(MOST);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        format!("; of NDK: {}{more}", words.join("; "))
    }
}

/// [`NdkSteps::in_words`] of the kernel that runs.
pub fn in_words() -> String {
    glance(|state| Some(state.part::<NdkSteps>().in_words())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Field, Fields, NdkSteps, Steps};

    fn fields(numbers: &[(&str, u64)]) -> Vec<(String, Field)> {
        numbers.iter().map(|(name, number)| ((*name).to_owned(), Field::Number(*number))).collect()
    }

    /// An object of that type (`NDK_OBJECT_TYPE`) that depends on those.
    fn opened(steps: &NdkSteps, key: u64, kind: u64, number: u64, on: &[u64]) {
        let mut event = fields(&[("Key", key), ("ObjectType", kind), ("Object", number)]);
        event.push(("On".to_owned(), Field::Numbers(on.to_vec())));
        steps.hear("NdkOpened", &event);
    }

    fn began(steps: &NdkSteps, key: u64, call: u64, function: &str, kind: u64, number: u64) {
        let mut event = fields(&[("Key", key), ("Call", call), ("ObjectType", kind), ("Object", number)]);
        event.push(("Function".to_owned(), Field::Text(function.to_owned())));
        steps.hear("NdkBegan", &event);
    }

    const CQ: u64 = ndkpi::NDK_OBJECT_TYPE::CQ.0 as u64;
    const QP: u64 = ndkpi::NDK_OBJECT_TYPE::QP.0 as u64;

    #[test]
    fn a_close_that_pends_names_what_is_open_on_it() {
        let steps = NdkSteps::default();
        opened(&steps, 10, CQ, 3, &[1, 0, 0, 0]);
        opened(&steps, 20, QP, 4, &[2, 10, 10, 0]);
        assert_eq!(steps.in_words(), "", "nothing is waited for");
        began(&steps, 10, 7, "NdkCloseObject", CQ, 3);
        steps.hear("NdkClosing", &fields(&[("Key", 10)]));
        assert_eq!(steps.in_words(), "; of NDK: NdkCloseObject of Cq 3 has not completed: open on it: Qp 4");
        steps.hear("NdkClosing", &fields(&[("Key", 20)]));
        assert_eq!(steps.in_words(), "; of NDK: NdkCloseObject of Cq 3 has not completed");
        steps.hear("NdkEnded", &fields(&[("Key", 10), ("Call", 7)]));
        assert_eq!(steps.in_words(), "");
        assert!(!steps.0.lock().expect("no panic").objects.contains_key(&10), "it is closed");
    }

    #[test]
    fn a_queue_that_is_not_armed_is_named_until_it_is() {
        let steps = Steps::default();
        let mut steps = steps;
        steps.objects.insert(
            10,
            super::Object {
                name: "Cq 3".to_owned(),
                on: Vec::new(),
                creator: "x.sys+0x10".to_owned(),
                is_closing: false,
                queue: Some(super::Queue { notification: "x.sys+0x20".to_owned(), armed: super::Armed::Never }),
            },
        );
        assert_eq!(steps.words(), ["Cq 3 created at x.sys+0x10 was never armed"]);
        let key = fields(&[("Key", 10)]);
        for (event, words) in [
            ("NdkArmed", &[][..]),
            (
                "NdkUnarmed",
                &["Cq 3 created at x.sys+0x10 is not armed since its notification at x.sys+0x20 returned, nor polled"],
            ),
            ("NdkPolled", &["Cq 3 created at x.sys+0x10 is not armed since its notification at x.sys+0x20 returned"]),
            ("NdkArmed", &[]),
            ("NdkPolled", &[]),
        ] {
            let _ = steps.hear(event, &Fields(&key));
            assert_eq!(steps.words(), words, "{event}");
        }
    }

    #[test]
    fn a_caller_is_not_the_provider_itself() {
        let places = |places: &[&str]| super::callers(places.iter().map(|&place| place.to_owned()).collect());
        let stack =
            ["nic.sys+0x10", "nic.sys+0x20", "x.sys:consumer+0x30", "x.sys:consumer+0x40", "x.sys:consumer+0x50"];
        assert_eq!(places(&stack), ["x.sys:consumer+0x30", "x.sys:consumer+0x40"]);
        assert_eq!(places(&stack[..2]), ["nic.sys+0x10", "nic.sys+0x20"], "better than none");
        assert!(places(&[]).is_empty());
    }

    #[test]
    fn an_event_that_lacks_something_is_left_alone() {
        let steps = NdkSteps::default();
        steps.hear("NdkBegan", &fields(&[("Key", 1), ("Call", 2)]));
        steps.hear("NdkOpened", &[]);
        steps.hear("Other", &fields(&[("Key", 1)]));
        assert_eq!(steps.in_words(), "");
    }

    #[test]
    fn no_more_are_named_than_a_message_has_room_for() {
        let steps = NdkSteps::default();
        (0..9).for_each(|call| began(&steps, 1, call, "NdkConnect", QP, call));
        assert!(steps.in_words().ends_with("; and 3 more"), "{}", steps.in_words());
    }
}
