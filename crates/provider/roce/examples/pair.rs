//! Two stacks that exchange every kind of request over a network in memory, and a capture of their frames: `pair FILE`.

#![allow(clippy::cast_possible_truncation, reason = "frames and messages are small")]

// What the tests use too: cargo builds examples from a folder of their own.
#[path = "../tests/roce/common/mod.rs"]
mod common;

use std::{fs::File, io::Write};

use common::world::World;
use roce::qp::Work;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: pair FILE")?;
    let mut sent = Vec::new();
    for v6 in [false, true] {
        let mut world = World::new(1);
        world.impairment.lost = 20;
        let ends = world.connect(v6);
        for side in &mut world.sides {
            side.memory.register(7, 0x1000, vec![7; 8192]);
            side.memory.register(8, 0x1000, vec![8; 16]);
            (0..64).for_each(|context| side.memory.post_receive(context, 8192));
        }
        for (side, (_, qp)) in ends.iter().enumerate() {
            let mut context = 0;
            for length in [0, 1, 1024, 1025, 5000] {
                for work in [
                    Work::Send { invalidate: None },
                    Work::Write { address: 0x1000, key: 7 },
                    Work::Read { address: 0x1000, key: 7 },
                ] {
                    context += 1;
                    world.post(side, *qp, context, work, vec![0xA5; length]);
                }
            }
            world.post(side, *qp, 100, Work::Send { invalidate: Some(8) }, vec![0xA5; 2000]);
        }
        world.run(10_000_000);
        // One that is refused.
        world.post(0, ends[0].1, 101, Work::Write { address: 0, key: 9 }, vec![1]);
        world.run(10_000_000);
        for (side, (connection, _)) in ends.iter().enumerate() {
            world.disconnect(side, *connection);
            world.run(10_000_000);
        }
        sent.append(&mut world.sent);
    }
    let mut file = File::create(path)?;
    for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 0x0001_0000, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    for (time, _, frame) in sent {
        let length = frame.len() as u32;
        for word in [(time / 1_000_000) as u32, (time % 1_000_000) as u32, length, length] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&frame)?;
    }
    Ok(())
}
