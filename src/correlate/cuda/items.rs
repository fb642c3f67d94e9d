//! Division of a channel's products among blocks and their warps.

/// Inputs of a group.
pub(super) const GROUP: usize = 32;

/// Groups along the side of a tile of 128 inputs.
const SIDE: usize = 4;

/// Marks a slot without a group.
const NOBODY: u16 = 0xffff;

/// Part of a warp: slot of the rows' group, slot of the first columns' group, and number of column groups, 1 or 2.
type Piece = (usize, usize, usize);

/// Unit of work of a block, in the layout that kernels read: the groups in its 8 slots, then the pieces of its warps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    groups: Vec<u16>,
    pieces: Vec<Piece>,
}

impl Item {
    fn new(groups: impl IntoIterator<Item = usize>, pieces: Vec<Piece>) -> Self {
        Self { groups: groups.into_iter().map(|group| group as u16).collect(), pieces }
    }

    /// Returns sixteen bytes of groups and sixteen of pieces: slot of rows, slot of columns << 3, groups of columns
    /// << 6.
    pub(super) fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let groups = self.groups.iter().copied().chain(std::iter::repeat(NOBODY));
        for (to, group) in bytes[..16].chunks_exact_mut(2).zip(groups) {
            to.copy_from_slice(&group.to_le_bytes());
        }
        for (to, (rows, columns, width)) in bytes[16..].iter_mut().zip(&self.pieces) {
            *to = (rows | columns << 3 | width << 6) as u8;
        }
        bytes
    }
}

/// Returns the items of a channel, for tiles of `edge` inputs a side. Wide pieces come first, because warps 0 to 3
/// and 4 to 7 share the four schedulers of a multiprocessor.
pub(super) fn items(inputs: usize, edge: usize) -> Vec<Item> {
    let groups = inputs.div_ceil(GROUP);
    if edge < SIDE * GROUP {
        return vec![Item::new(0..groups, triangle(groups))];
    }
    let (last, rest) = ((groups - 1) / SIDE, (groups - 1) % SIDE + 1);
    // The rows of a single last group join the items of diagonal tiles, which leave warps idle.
    let lone = rest == 1 && last > 0;
    let mut items = Vec::new();
    for i in 0..=last {
        let first = i * SIDE;
        let rows = first..groups.min(first + SIDE);
        let below = if lone && i == last { 0 } else { i };
        items.extend((0..below).map(|j| square(rows.clone(), j * SIDE)));
        let mut diagonal = Item::new(rows.clone(), triangle(rows.len()));
        if lone && i < last {
            diagonal.groups.push((groups - 1) as u16);
            diagonal.pieces.splice(SIDE..SIDE, [(SIDE, 0, 2), (SIDE, 2, 2)]);
        }
        items.push(diagonal);
    }
    items
}

/// Returns the pieces of a triangle of groups: the diagonal and below.
fn triangle(groups: usize) -> Vec<Piece> {
    match groups {
        4 => vec![(1, 0, 2), (2, 0, 2), (3, 0, 2), (3, 2, 2), (0, 0, 1), (2, 2, 1)],
        3 => vec![(1, 0, 2), (2, 0, 2), (0, 0, 1), (2, 2, 1)],
        2 => vec![(0, 0, 1), (1, 0, 1), (1, 1, 1)],
        _ => vec![(0, 0, 1)],
    }
}

/// Returns the item of these rows' groups and one full tile side of columns.
fn square(rows: std::ops::Range<usize>, column: usize) -> Item {
    let wide = |row| [(row, SIDE, 2), (row, SIDE + 2, 2)];
    let pieces = match rows.len() {
        3 => {
            let narrow = (SIDE..2 * SIDE).map(|column| (2, column, 1));
            [0, 1].into_iter().flat_map(wide).chain(narrow).collect()
        }
        rows => (0..rows).flat_map(wide).collect(),
    };
    let nobody = std::iter::repeat_n(NOBODY as usize, SIDE - rows.len());
    Item::new(rows.chain(nobody).chain(column..column + SIDE), pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts for each pair of groups the pieces that cover it.
    fn covered(items: &[Item], groups: usize) -> Vec<usize> {
        let mut counts = vec![0; groups * groups];
        for item in items {
            assert!(item.pieces.len() <= 8 && item.groups.len() <= 8);
            for (row, column, width) in &item.pieces {
                for column in *column..column + width {
                    let (row, column) =
                        (usize::from(item.groups[*row]), usize::from(item.groups[column]));
                    counts[row * groups + column] += 1;
                }
                // Both groups of a wide piece lie in one tile.
                assert!(*width == 1 || item.groups[*column] % 2 == 0);
            }
        }
        counts
    }

    #[test]
    fn every_product_is_made_once() {
        for inputs in 1..=700_usize {
            let edge = match inputs {
                ..=32 => 32,
                33..=64 => 64,
                _ => 128,
            };
            let groups = inputs.div_ceil(GROUP);
            let counts = covered(&items(inputs, edge), groups);
            for (row, column) in (0..groups).flat_map(|i| (0..groups).map(move |j| (i, j))) {
                let count = counts[row * groups + column];
                let expected = usize::from(column <= row);
                assert_eq!(count, expected, "{inputs} inputs: {row}, {column}");
            }
        }
    }

    #[test]
    fn bytes_are_groups_and_pieces() {
        let bytes = items(130, 128)[0].bytes();
        assert_eq!(bytes[..12], [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 255, 255]);
        assert_eq!(bytes[16..24], [0x81, 0x82, 0x83, 0x93, 0x84, 0x94, 0x40, 0x52]);
    }
}
