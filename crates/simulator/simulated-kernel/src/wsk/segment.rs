//! What the two ends of a connection tell each other: TCP, as far as a client can see it.
//!
//! Bytes are counted from the first of the stream, so that it does not matter in which order segments come, nor how often.

/// How long the other side may be silent, in microseconds, about what it has to answer: as long as Windows asks for a connection.
pub const PATIENCE: u64 = 21_000_000;

/// Something that one end tells the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A connection is wanted.
    Open,
    /// There is one.
    Opened,
    /// There is none: nobody listens, or too many wait.
    Refused,
    /// Bytes of the stream.
    Data { offset: u64, bytes: Vec<u8> },
    /// The stream ends behind so many bytes.
    End { offset: u64 },
    /// So many bytes have come, the end being one, and so many of them were taken.
    Taken { received: u64, consumed: u64 },
    /// The connection is over, with what was under way.
    Reset,
}

impl Segment {
    /// As bytes, with the number of the connection.
    pub fn encode(&self, id: u64) -> Vec<u8> {
        let (kind, first, second, rest): (u8, u64, u64, &[u8]) = match self {
            Self::Open => (0, 0, 0, &[]),
            Self::Opened => (1, 0, 0, &[]),
            Self::Refused => (2, 0, 0, &[]),
            Self::Data { offset, bytes } => (3, *offset, 0, bytes),
            Self::End { offset } => (4, *offset, 0, &[]),
            Self::Taken { received, consumed } => (5, *received, *consumed, &[]),
            Self::Reset => (6, 0, 0, &[]),
        };
        [&[kind], &id.to_be_bytes()[..], &first.to_be_bytes(), &second.to_be_bytes(), rest].concat()
    }

    /// The number of the connection, and what was told.
    pub fn decode(bytes: &[u8]) -> Option<(u64, Self)> {
        let (&kind, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (second, rest) = rest.split_first_chunk()?;
        let (first, second) = (u64::from_be_bytes(*first), u64::from_be_bytes(*second));
        let segment = match kind {
            0 => Self::Open,
            1 => Self::Opened,
            2 => Self::Refused,
            3 => Self::Data { offset: first, bytes: rest.to_vec() },
            4 => Self::End { offset: first },
            5 => Self::Taken { received: first, consumed: second },
            6 => Self::Reset,
            _ => return None,
        };
        Some((u64::from_be_bytes(*id), segment))
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;

    #[test]
    fn what_is_encoded_is_decoded() {
        for segment in [
            Segment::Open,
            Segment::Opened,
            Segment::Refused,
            Segment::Data { offset: 7, bytes: vec![1, 2, 3] },
            Segment::End { offset: 10 },
            Segment::Taken { received: 11, consumed: 4 },
            Segment::Reset,
        ] {
            assert_eq!(Segment::decode(&segment.encode(99)), Some((99, segment)));
        }
        assert_eq!(Segment::decode(&[3; 24]), None, "too short");
        assert_eq!(Segment::decode(&[7; 25]), None, "of no kind");
    }
}
