"""render_tables.py renders the tables that its markers name, and every page is up to date."""
import json
import pathlib
import sys
import tempfile
import unittest

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results"
sys.path.insert(0, str(RESULTS))

import render_tables  # noqa: E402

DATA = {"environment": "none", "tables": {"speeds": {"columns": ["M", "us"], "rows": [[1, "2.5"], [16, None]]}}}
PAGE = "before\n<!-- table: data.json speeds -->\n| old |\n<!-- end -->\nafter\n"
RENDERED = "before\n<!-- table: data.json speeds -->\n| M | us |\n| --- | --- |\n| 1 | 2.5 |\n| 16 |  |\n<!-- end -->\nafter\n"


class Render(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.put(DATA)

    def put(self, data):
        (pathlib.Path(self.folder.name) / "data.json").write_text(json.dumps(data), encoding="utf-8")

    def render(self, text):
        return render_tables.render(text, pathlib.Path(self.folder.name))

    def fault(self, text):
        with self.assertRaises(render_tables.TableError) as caught:
            self.render(text)
        return str(caught.exception)

    def test_replaces_what_stands_between_the_markers(self):
        self.assertEqual(self.render(PAGE), RENDERED)

    def test_an_up_to_date_page_stays(self):
        self.assertEqual(self.render(RENDERED), RENDERED)

    def test_a_changed_figure_changes_the_page(self):
        self.put({"tables": {"speeds": {"columns": ["M", "us"], "rows": [[1, "2.6"]]}}})
        self.assertIn("| 1 | 2.6 |", self.render(RENDERED))

    def test_text_without_markers_stays(self):
        self.assertEqual(self.render("| a | b |\n| --- | --- |\n"), "| a | b |\n| --- | --- |\n")

    def test_faults_name_their_line(self):
        self.assertEqual(self.fault("<!-- table: none.json x -->\n<!-- end -->")[:18], "line 1: none.json:")
        self.assertEqual(self.fault("\n<!-- table: data.json x -->\n<!-- end -->"), "line 2: data.json: no table 'x'")
        self.assertEqual(self.fault("<!-- table: data.json speeds -->"), "line 1: the table has no '<!-- end -->'")
        self.assertEqual(self.fault("<!-- end -->"), "line 1: '<!-- end -->' without a table")
        self.assertIn("expected", self.fault("<!-- table data.json speeds -->"))

    def test_rows_have_as_many_cells_as_columns(self):
        self.put({"tables": {"speeds": {"columns": ["M", "us"], "rows": [[1]]}}})
        self.assertIn("1 cells in a row of 2 columns", self.fault(PAGE))


class Reports(unittest.TestCase):
    REPORTS = [
        {"title": "quantised weights, 8192 x 8192", "unit": "launches a millisecond",
         "rows": [{"problem": "1 row", "values": {"bf16": 32.0, "int4, groups of 128": 96.0, "MXFP4": 64.0, "int8": 40.0}}]}
    ]

    def test_a_view_computes_from_the_report(self):
        columns, rows = render_tables.gemm_quantised(self.REPORTS)
        self.assertEqual(rows, [["1", "31.2", "10.4 (3.00x)", "15.6 (2.00x)", "25.0 (1.25x)"]])
        self.assertEqual(len(columns), 5)

    def test_a_missing_report_or_contestant_is_named(self):
        with self.assertRaisesRegex(render_tables.TableError, "0 reports"):
            render_tables.gemm_bf16(self.REPORTS)
        with self.assertRaisesRegex(render_tables.TableError, "0 contestants"):
            render_tables.value(self.REPORTS[0]["rows"][0], "^cuBLAS$")


class Pages(unittest.TestCase):
    def test_every_page_is_up_to_date(self):
        self.assertEqual(render_tables.main(["--check"]), 0)

    def test_every_table_of_a_results_page_is_generated(self):
        for page in RESULTS.glob("*.md"):
            inside = False
            for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
                inside = (inside or line.startswith("<!-- table: ")) and line != "<!-- end -->"
                self.assertTrue(inside or not line.startswith("|"), f"{page.name}:{number}: a table outside of markers")

    def test_pages_have_at_most_150_lines(self):
        for page in RESULTS.glob("*.md"):
            self.assertLessEqual(len(page.read_text(encoding="utf-8").splitlines()), 150, page.name)

    def test_every_table_of_the_json_files_is_published(self):
        pages = "".join(page.read_text(encoding="utf-8") for folder in render_tables.PAGES for page in folder.glob("*.md"))
        for file in RESULTS.glob("*.json"):
            data = json.loads(file.read_text(encoding="utf-8"))
            for name in data.get("tables", {}) if isinstance(data, dict) else []:
                self.assertIn(f"<!-- table: {file.name} {name} -->", pages)


if __name__ == "__main__":
    unittest.main()
