"""Triggers that other programs send as datagrams."""

import json

from seed_files.common import save


def triggers():
    own = {"time": "2023-02-25T00:01:30.25Z", "dm": 350.5, "dm_error": 2, "width_s": 0.004, "snr": 11.5, "name": "B1",
           "reference_mhz": 1500, "priority": 3, "test": True}
    chime = {"event_id": 42, "start_unix_seconds": 1677283212, "start_unix_nano": 5, "duration_nano": 1000, "dm": 60.5,
             "dm_error": 0.5, "file_path": "/data"}
    candidate = {"240918aaaa": {"mjds": 60000.001, "snr": 12.7, "ibox": 4, "dm": 279.4, "ibeam": 127, "specnum": 9}}
    column = "12.5\t1500\t1500\t1.5\t2\t70\t60.2\t0\n"
    # Samples count from the time of the body, which allows ten seconds of the future.
    texts = {
        "valid_own": json.dumps(own),
        "valid_mjd": json.dumps({"mjd": 60000.001}),
        "valid_unix": json.dumps({"unix": 1677283212.25, "dm": 5}),
        "valid_sample": json.dumps({"sample": 1500, "dm": 5}),
        "valid_chime": json.dumps(chime),
        "valid_grex": json.dumps({"candname": "240918aaaa", "itime": 1500}),
        "valid_dsa110": "1500-240918aaaa-",
        "valid_dsa110_command": json.dumps({"cmd": "trigger", "val": "1500-240918aaaa-"}),
        "valid_dsa110_candidate": json.dumps(candidate),
        "valid_heimdall": column + column.replace("12.5", "9") + "\3",
        "broken_empty": "",
        "broken_flush": "0-flush-",
        "broken_early": json.dumps({"unix": 0, "dm": 5}),
        "broken_late": json.dumps({"sample": 10_001, "dm": 5}),
        "broken_dm": json.dumps({"sample": 1, "dm": 1e9}),
        "broken_nan": column.replace("60.2", "NaN"),
        "broken_name": json.dumps(own | {"name": "../x"}),
        "broken_deep": '{"unix": ' + "[" * 1000 + "]" * 1000 + "}",
        "broken_times": json.dumps(own | {"mjd": 60000}),
        "broken_columns": column.replace("\t0", ""),
    }
    for name, text in texts.items():
        save("trigger", f"{name}.txt", text.encode())
