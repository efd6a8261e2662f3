"""check_names.py finds retired names as whole words, and terms in opening comments and names alone."""

import unittest

import check_names


class Names(unittest.TestCase):
    def test_whole_words(self):
        found = list(check_names.retired_in("int old_name;\nint all_old_name, old_name_of;\n", ["old_name"]))
        self.assertEqual(found, [(1, "old_name")])

    def test_comments_of_the_list(self):
        self.assertEqual(check_names.retired_names("# why\nold_name\n\n"), ["old_name"])

    def test_terms(self):
        text = "// Decode with GQA.\n#pragma once\nint seqlen;  // split-KV\n"
        searched = check_names.opening_comment_and_names(text)
        self.assertIn("GQA", searched)
        self.assertIn("seqlen", searched)
        self.assertNotIn("split-KV", searched)


if __name__ == "__main__":
    unittest.main()
