//! Assigns filters to the eight lanes of a quarter-warp so that a 128-bit load has as few bank conflicts as possible.
//! Each lane takes one filter of its own template.
//!
//! This is a bipartite matching of templates and bank groups, maximized by augmenting paths. It covers the bank
//! groups with most filters left and the templates without spare slots. If no bank group has more filters left than
//! matchings to come, then no matching uses a bank group twice (König: a bipartite graph decomposes into as many
//! matchings as its largest degree).

/// Bank groups of shared memory, 16 bytes each.
pub(super) const BANK_GROUPS: usize = 8;
/// Most templates of a warp.
pub(super) const TEMPLATES: usize = 8;

/// Filters of each template in each bank group.
pub(super) type Counts = [[usize; BANK_GROUPS]; TEMPLATES];

/// Matching under construction for eight lanes.
#[derive(Debug)]
struct Matching<'a> {
    /// Remaining filters, and the fewest and most lanes to fill per template.
    left: &'a Counts,
    needed: &'a [usize; TEMPLATES],
    each: usize,
    /// Most filters of a bank group.
    most: usize,
    taken: Counts,
    of_template: [usize; TEMPLATES],
    of_bank: [usize; BANK_GROUPS],
}

/// Returns the filters that the next eight lanes take: at least `needed` and at most `each` of each template.
pub(super) fn matching(left: &Counts, needed: &[usize; TEMPLATES], each: usize) -> Counts {
    let (taken, of_template) = ([[0; BANK_GROUPS]; TEMPLATES], [0; TEMPLATES]);
    let mut matching =
        Matching { left, needed, each, most: 1, taken, of_template, of_bank: [0; BANK_GROUPS] };
    while !matching.fill() {
        matching.most += 1;
    }
    matching.taken
}

impl Matching<'_> {
    /// Extends the matching with at most `most` filters per bank group, fullest bank groups first. Returns whether
    /// every template has its needed lanes.
    fn fill(&mut self) -> bool {
        let mut banks: Vec<(usize, usize)> = (0..BANK_GROUPS)
            .map(|bank| (self.left.iter().map(|left| left[bank]).sum::<usize>(), bank))
            .collect();
        banks.sort_unstable_by(|a, b| b.cmp(a));
        for (left, bank) in banks {
            if self.of_bank[bank] < left.min(self.most) && self.add_of_bank(bank, &mut 0) {
                self.of_bank[bank] += 1;
            }
        }
        (0..TEMPLATES).all(|template| {
            while self.of_template[template] < self.needed[template] {
                if !self.add_of_template(template, &mut 0) {
                    return false;
                }
                self.of_template[template] += 1;
            }
            true
        })
    }

    fn has(&self, template: usize, bank: usize) -> bool {
        self.taken[template][bank] < self.left[template][bank]
    }

    /// Takes one more filter of a bank group along an augmenting path; `seen` marks the bank groups on the path.
    fn add_of_bank(&mut self, bank: usize, seen: &mut u32) -> bool {
        *seen |= 1 << bank;
        let open = |template: &usize| self.of_template[*template] < self.each;
        let has = |template: &usize| self.has(*template, bank);
        let free = (0..TEMPLATES).filter(open).filter(has);
        if let Some(template) = free.max_by_key(|template| self.left[*template][bank]) {
            self.taken[template][bank] += 1;
            self.of_template[template] += 1;
            return true;
        }
        for template in 0..TEMPLATES {
            if !self.has(template, bank) {
                continue;
            }
            for other in 0..BANK_GROUPS {
                if self.taken[template][other] == 0 || *seen >> other & 1 == 1 {
                    continue;
                }
                if self.add_of_bank(other, seen) {
                    self.taken[template][other] -= 1;
                    self.taken[template][bank] += 1;
                    return true;
                }
            }
        }
        false
    }

    /// Takes one more filter of a template in the same way; a template that has more than it needs may release one.
    fn add_of_template(&mut self, template: usize, seen: &mut u32) -> bool {
        *seen |= 1 << template;
        for bank in 0..BANK_GROUPS {
            if !self.has(template, bank) {
                continue;
            }
            if self.of_bank[bank] < self.most {
                self.of_bank[bank] += 1;
                self.taken[template][bank] += 1;
                return true;
            }
            for other in 0..TEMPLATES {
                if self.taken[other][bank] == 0 || *seen >> other & 1 == 1 {
                    continue;
                }
                let spare = self.of_template[other] > self.needed[other];
                self.of_template[other] -= usize::from(spare);
                if spare || self.add_of_template(other, seen) {
                    self.taken[other][bank] -= 1;
                    self.taken[template][bank] += 1;
                    return true;
                }
            }
        }
        false
    }
}
