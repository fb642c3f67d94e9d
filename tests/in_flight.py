"""Finds registers that Hopper's matrix instructions still read when something else writes them.

    LD_LIBRARY_PATH=$(cat target/nvrtc/libraries) cargo run --example compile_kernels -- FILE.cu -DNAME=VALUE... \\
        --arch sm_90a --cubin OUT
    python3 tests/in_flight.py OUT...

A product of a warpgroup reads the registers of its left side some time after it was issued; they are free when a wait
retires it. All paths through the machine code are followed, with what is in flight on each. A path that comes to a wait
for all but some products without having issued any since the one before is left: the kernels choose one of their kinds
of product every time. An instruction of which it is not known what it writes is an error. nvdisasm is needed (CUDA, or
nvidia-cuda-nvdisasm of PyPI).
"""

import re
import shutil
import subprocess
import sys

LINE = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Za-z0-9_.]+)\s*(.*?)\s*;")
LABEL = re.compile(r"(\.L_\w+):")
# By the first word of the name: how many registers an instruction writes.
WRITES = {
    0: "STG STS BRA BSYNC BSSY NOP YIELD SYNCS BAR EXIT WARPGROUP WARPSYNC ENDCOLLECTIVE DEPBAR MEMBAR FENCE CALL RET R2UR "
    "VOTEU ELECT S2UR ISETP FSETP PLOP3 IGMMA UMOV UIADD3 ULDC ULEA USHF ULOP3 USEL UISETP UIMAD UTMALDG UTMACMDFLUSH UBLKRED "
    "UBLKCP USETMAXREG",
    1: "SEL IMAD LOP3 SHFL SHF VIADD IDP IADD3 PRMT LEA FFMA FMUL FADD VIMNMX S2R MOV MUFU I2FP I2F F2I LDC LDS LDG "
    "FLO POPC ATOMG",
    2: "CS2R",
    4: "LDSM IMMA",
}
COUNTS = {name: count for count, names in WRITES.items() for name in names.split()}


class Unknown(Exception):
    """An instruction that this does not know."""


def read(text):
    """Instructions as (guard, name, operands), and where labels stand among them."""
    code, labels = [], {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := LINE.match(line):
            code.append((found[1], found[2], found[3]))
    return code, labels


def written(name, operands):
    """The registers that an instruction writes."""
    count = COUNTS.get(name.split(".")[0])
    if count is None:
        raise Unknown(f"{name} {operands}")
    if count == 1 and (".128" in name or ".64" in name or ".WIDE" in name):
        count = 4 if ".128" in name else 2
    # A predicate may stand before the register.
    for word in operands.split(",")[:2] if count else []:
        if found := re.fullmatch(r"R(\d+)(?:\.\w+)*", word.strip()):
            return range(int(found[1]), int(found[1]) + count)
        if not re.fullmatch(r"U?P[\dT]", word.strip()):
            return ()
    return ()


def follow(code, labels):
    """Places whose instruction writes what a product in flight reads, and the number of products."""
    ends = {}   # of each barrier of convergence, where its threads may go on
    for _, name, operands in code:
        if name == "BSSY":
            barrier, label = operands.split(", ")
            ends.setdefault(barrier, set()).add(labels[label.strip("`()")])
    nothing, faults, products = frozenset(), set(), set()
    work, seen = [(0, nothing, (), False)], set()   # place, products of no group yet, groups in flight, one since the last wait
    while work:
        state = work.pop()
        if state in seen or state[0] >= len(code):
            continue
        seen.add(state)
        place, loose, groups, some = state
        guard, name, operands = code[place]
        flying = loose.union(*groups)
        if flying.intersection(written(name, operands)) or (flying and name.startswith("CALL")):
            faults.add(place)
        if name.startswith("IGMMA"):
            products.add(place)
            left = re.match(r"R\d+, R(\d+)", operands)
            loose |= frozenset(range(int(left[1]), int(left[1]) + 4)) if left else nothing
            if "gsb0" in operands:
                groups, loose, some = groups + (loose,), nothing, True
        elif name == "WARPGROUP.DEPBAR.LE":
            left = int(operands.split(", ")[1], 16)
            if left and groups and not some:
                continue
            groups, some = groups[len(groups) - left if left < len(groups) else 0 :] if left else (), False
        target = re.search(r"`\((\.L_\w+)\)", operands)
        following = {labels[target[1]]} if target and name != "BSSY" and target[1] in labels else set()
        following |= ends.get(operands, set()) if name == "BSYNC" else set()
        jumps = (name == "BRA" and operands.startswith("`")) or name.startswith(("EXIT", "RET"))
        if guard or not jumps:
            following.add(place + 1)
        work.extend((next_place, loose, groups, some) for next_place in following)
    return sorted(faults), len(products)


def assert_that_it_finds():
    """A product's rows fetched before and after the wait for it."""
    fetch, wait = " /*30*/ LDSM.16.M88.4 R12, [R9] ;", " /*20*/ WARPGROUP.DEPBAR.LE gsb0, 0x0 ;"
    product = " /*10*/ IGMMA.64x16x32.S8.S8 R24, R8, gdesc[UR4], R24, gsb0 ;\n /*11*/ IGMMA.64x16x32.S8.S8 R24, R12, gdesc[UR4], R24, gsb0 ;"
    for lines, expected in [((product, wait, fetch), []), ((product, fetch, wait), [2])]:
        faults, products = follow(*read("\n".join([*lines, " /*40*/ EXIT ;"])))
        assert (faults, products) == (expected, 2), (lines, faults)


def main(paths):
    assert_that_it_finds()
    if shutil.which("nvdisasm") is None:
        print("skipped: nvdisasm is not installed, so no machine code was looked through")
        return 0
    status = 0
    for path in paths:
        text = subprocess.run(["nvdisasm", "-c", path], check=True, stdout=subprocess.PIPE, text=True, errors="replace").stdout
        code, labels = read(text)
        try:
            faults, products = follow(code, labels)
        except Unknown as unknown:
            print(f"{path}: what this writes is not known: {unknown}")
            status = 1
            continue
        print(f"{path}: {products} products, {len(faults)} registers written while they are read")
        for place in faults:
            print("   ", code[place][1], code[place][2])
        status |= bool(faults) or products == 0
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
