package main

import "testing"

// Ensure that only an explicit command line deletes every key: an empty prefix may come from a
// variable that is not set.
func TestKV_Delete_EveryKeyOnlyWithAll(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	fill := func() {
		t.Helper()
		s.at("", "kv", "put", "a", "1").wants(t, 0, "")
		s.at("", "kv", "put", "b", "2").wants(t, 0, "")
	}
	keys := func(want string) {
		t.Helper()
		if r := s.at("", "kv", "list"); r.out != want {
			t.Errorf("left: %q, want %q", r.out, want)
		}
	}
	fill()
	for _, test := range []struct {
		complaint string
		args      []string
	}{
		{"KEY is empty, which is the prefix of every key: give --all too to delete them all",
			[]string{"--recurse", ""}},
		{"--all goes with --recurse", []string{"--all", ""}},
		{"--all goes with --recurse", []string{"--all", "a"}},
		{"--all deletes every key, not those that begin with \"a\"",
			[]string{"--recurse", "--all", "a"}},
		{"an argument is missing", []string{"--recurse"}},
		{"an argument is missing", nil},
	} {
		s.at("", append([]string{"kv", "delete"}, test.args...)...).
			wants(t, exitUsage, test.complaint)
	}
	keys("a\nb\n")
	s.at("", "kv", "delete", "--recurse", "--all", "").wants(t, 0, "")
	keys("")
	fill()
	s.at("", "kv", "delete", "--recurse", "--all").wants(t, 0, "")
	keys("")
	s.end()
}
