package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// shellWords splits a command line as a shell does, as far as the guides need it.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	line = strings.ReplaceAll(line, "\\\n", " ")
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && (c == ' ' || c == '\n'):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case quote == 0 && strings.ContainsRune(`<>&|;$\*`, c):
			t.Fatalf("%s: a shell does something about %q", line, c)
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	if quote != 0 {
		t.Fatalf("%s: a quote is open", line)
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// curl runs a curl command line, and returns the status and the body.
func (s *serving) curl(line string) (int, string) {
	s.t.Helper()
	words := shellWords(s.t, line)
	if words[0] != "curl" {
		s.t.Fatalf("%s: not curl", line)
	}
	method, data, url := http.MethodGet, "", ""
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-X":
			i++
			method = words[i]
		case "-d":
			i++
			data = words[i]
		default:
			url = words[i]
		}
	}
	path, ok := strings.CutPrefix(url, "http://localhost:8500")
	if !ok {
		s.t.Fatalf("%s: not for the server", line)
	}
	r := newRequest(s.t, method, s.url+path, data)
	if data != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else {
		r.Body, r.ContentLength = nil, 0
	}
	return send(s.t, http.DefaultClient, r)
}

// fields runs a command line, which must be answered with status 200 and an array of objects.
func (s *serving) fields(line string) []map[string]any {
	s.t.Helper()
	status, body := s.curl(line)
	var objects []map[string]any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&objects); err != nil || status != 200 {
		s.t.Fatalf("%s: %d, %s: %v", line, status, body, err)
	}
	return objects
}

// says fails the test unless the command line is answered with status 200 and that body.
func (s *serving) says(want, line string) {
	s.t.Helper()
	if status, body := s.curl(line); status != 200 || body != want {
		s.t.Errorf("%s: got %d, %s, want %s", line, status, body, want)
	}
}

// session makes a session with a command line, and returns its ID.
func (s *serving) session(line string) string {
	s.t.Helper()
	status, body := s.curl(line)
	var made map[string]string
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != 200 || len(made) != 1 {
		s.t.Fatalf("%s: %d, %s: %v", line, status, body, err)
	}
	if _, err := lockd.ParseSessionID(made["ID"]); err != nil {
		s.t.Fatalf("%s: %s: %v", line, body, err)
	}
	return made["ID"]
}

// has fails the test unless the object has all those fields with those texts. Nil stands for a
// missing field.
func has(t *testing.T, got map[string]any, want map[string]any) {
	t.Helper()
	for name, value := range want {
		field, there := got[name]
		if value == nil {
			if there {
				t.Errorf("%s is %v, want none", name, field)
			}
			continue
		}
		if !there || fmt.Sprint(field) != fmt.Sprint(value) {
			t.Errorf("%s is %v, want %v", name, field, value)
		}
	}
}

// The command lines of the guides to leader election: the newer guide, and an older edition with
// other names for the session and the key.
func TestCurl_LeaderElection(t *testing.T) {
	t.Parallel()
	for _, guide := range []struct{ create, name, get string }{
		{`curl  -X PUT -d '{"Name": "mysql-session"}' http://localhost:8500/v1/session/create`,
			"mysql-session", "curl -X GET "},
		{"curl  -X PUT -d '{\"Name\": \"dbservice\"}' \\\n" +
			"   http://localhost:8500/v1/session/create", "dbservice", "curl  "},
	} {
		t.Run(guide.name, func(t *testing.T) {
			const key = "service/mysql/leader"
			const url = "http://localhost:8500/v1/kv/" + key
			s := served(t, "--memory", "--node", "consul-primary")
			id, other := s.session(guide.create), s.session(guide.create)
			if id == other {
				t.Fatal("two sessions have one ID")
			}
			s.says("true", `curl -X PUT -d 'body' '`+url+`?acquire=`+id+`'`)
			s.says("false", `curl -X PUT -d 'other body' '`+url+`?acquire=`+other+`'`)

			leader := s.fields(guide.get + url)
			if len(leader) != 1 {
				t.Fatalf("got %v", leader)
			}
			first := leader[0]
			has(t, first, map[string]any{
				"Session": id, "Value": "Ym9keQ==", "Flags": 0, "Key": key, "LockIndex": 1,
				"ModifyIndex": first["CreateIndex"],
			})

			info := s.fields(guide.get + "http://localhost:8500/v1/session/info/" + id)
			if len(info) != 1 {
				t.Fatalf("got %v", info)
			}
			// The guide's Checks are called NodeChecks now.
			has(t, info[0], map[string]any{
				"LockDelay": int64(15_000_000_000), "NodeChecks": []string{"serfHealth"},
				"Node": "consul-primary", "Name": guide.name, "ID": id, "Checks": nil,
			})
			if index := fmt.Sprint(info[0]["CreateIndex"]); index == "0" || index == "<nil>" {
				t.Errorf("CreateIndex is %s", index)
			}

			s.says("false", `curl -X PUT '`+url+`?release=`+other+`'`)
			s.says("true", `curl -X PUT '`+url+`?release=`+id+`'`)
			has(t, s.fields(guide.get + url)[0], map[string]any{
				"Session": nil, "Key": key, "LockIndex": 1, "CreateIndex": first["CreateIndex"],
			})
			s.says("true", `curl -X PUT -d 'other body' '`+url+`?acquire=`+other+`'`)
			has(t, s.fields(guide.get + url)[0], map[string]any{"Session": other, "LockIndex": 2})
		})
	}
}

// The command lines of the guide to semaphores.
func TestCurl_Semaphore(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	const kv = "http://localhost:8500/v1/kv/"
	create := "curl -X PUT -d '{\"Name\": \"db-semaphore\"}' \\\n" +
		"http://localhost:8500/v1/session/create"
	session, other := s.session(create), s.session(create)
	contend := func(id string) string {
		return `curl -X PUT -d 'body' '` + kv + `db/semaphore/` + id + `?acquire=` + id + `'`
	}
	s.says("true", contend(session))
	s.says("true", contend(other))
	const lock = kv + "db/semaphore/.lock"
	body := `{"Limit": 2, "Holders": ["` + session + `"]}`
	s.says("true", `curl -X PUT -d '`+body+`' '`+lock+`?cas=0'`)
	s.says("false", `curl -X PUT -d '`+body+`' '`+lock+`?cas=0'`)

	const read = `curl '` + kv + `db/semaphore?recurse'`
	byKey := make(map[string]map[string]any)
	for _, e := range s.fields(read) {
		byKey[fmt.Sprint(e["Key"])] = e
	}
	if len(byKey) != 3 {
		t.Fatalf("got %v", byKey)
	}
	state := byKey["db/semaphore/.lock"]
	has(t, state, map[string]any{
		"LockIndex": 0, "Flags": 0, "Session": nil, "Value": inBase64(t, body),
		"CreateIndex": state["ModifyIndex"],
	})
	for _, id := range []string{session, other} {
		e := byKey["db/semaphore/"+id]
		has(t, e, map[string]any{
			"LockIndex": 1, "Flags": 0, "Session": id, "Value": "Ym9keQ==",
			"CreateIndex": e["ModifyIndex"],
		})
	}

	index := fmt.Sprint(state["ModifyIndex"])
	body = `{"Limit": 2, "Holders": ["` + session + `", "` + other + `"]}`
	update := `curl -X PUT -d '` + body + `' '` + lock + `?cas=` + index + `'`
	s.says("true", update)
	s.says("false", update) // another client was quicker
	for _, e := range s.fields(read) {
		if e["Key"] == "db/semaphore/.lock" {
			has(t, e, map[string]any{
				"CreateIndex": state["CreateIndex"], "Value": inBase64(t, body),
			})
			if fmt.Sprint(e["ModifyIndex"]) == index {
				t.Error("ModifyIndex has not moved")
			}
		}
	}
}

// inBase64 returns a text as the API shows it.
func inBase64(t *testing.T, text string) string {
	t.Helper()
	encoded, err := json.Marshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(encoded), `"`)
}
