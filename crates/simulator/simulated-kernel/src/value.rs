//! Values of the registry.

/// A value in the registry.
#[derive(Clone, Debug)]
pub enum Value {
    /// `REG_DWORD`.
    Number(u32),
    /// `REG_QWORD`.
    Long(u64),
    /// `REG_SZ`: the code units with their terminator.
    Text(Vec<u16>),
    /// `REG_BINARY`.
    Binary(Vec<u8>),
    /// `REG_MULTI_SZ`: the code units of each string with its terminator, and one more terminator at the end.
    List(Vec<u16>),
    /// Of any other type: its number.
    Other(u32, Vec<u8>),
}

impl Value {
    /// A list of these strings.
    #[must_use]
    pub fn list(strings: &[&str]) -> Self {
        let units = strings.iter().flat_map(|string| string.encode_utf16().chain([0]));
        Self::List(units.chain([0]).collect())
    }

    /// A string.
    #[must_use]
    pub fn text(string: &str) -> Self {
        Self::Text(string.encode_utf16().chain([0]).collect())
    }

    /// The value of that type with these bytes. A number or string of another length than its type has is of no type that drivers are
    /// given as a number or string, and keeps its bytes.
    pub(crate) fn of(kind: u32, bytes: &[u8]) -> Self {
        let units = || bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        let is_even = bytes.len().is_multiple_of(2);
        match (kind, <[u8; 4]>::try_from(bytes), <[u8; 8]>::try_from(bytes)) {
            (1, ..) if is_even => Self::Text(units()),
            (3, ..) => Self::Binary(bytes.to_vec()),
            (4, Ok(number), _) => Self::Number(u32::from_le_bytes(number)),
            (7, ..) if is_even => Self::List(units()),
            (11, _, Ok(number)) => Self::Long(u64::from_le_bytes(number)),
            _ => Self::Other(kind, bytes.to_vec()),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Number(number) => number.to_le_bytes().to_vec(),
            Self::Long(number) => number.to_le_bytes().to_vec(),
            Self::Binary(bytes) | Self::Other(_, bytes) => bytes.clone(),
            Self::Text(units) | Self::List(units) => units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        }
    }

    pub(crate) const fn kind(&self) -> u32 {
        match self {
            Self::Text(_) => 1,
            Self::Binary(_) => 3,
            Self::Number(_) => 4,
            Self::List(_) => 7,
            Self::Long(_) => 11,
            Self::Other(kind, _) => *kind,
        }
    }
}
