package file_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// churn is random writes to the keys, of shapes that make pages split, merge and go.
type churn struct {
	random *rand.Rand
	s      *store.Store
}

func (c *churn) put(key string) {
	row := schema.Key{Key: key, Value: make([]byte, c.size()), ModifyIndex: c.s.Next()}
	c.s.Keys.Put(key, row)
}

// size is mostly small, sometimes some pages.
func (c *churn) size() int {
	if c.random.IntN(50) == 0 {
		return c.random.IntN(20_000)
	}
	return c.random.IntN(300)
}

func (c *churn) key() string {
	n := c.random.IntN(3000)
	return fmt.Sprintf("%04d%s", n, strings.Repeat("x", n*n%200))
}

// write does one of the things that change many rows, or few.
func (c *churn) write() {
	switch c.random.IntN(6) {
	case 0: // few
		c.put(c.key())
	case 1: // many, all over
		for range c.random.IntN(300) {
			c.put(c.key())
		}
	case 2: // many in one place
		from := c.key()
		for range c.random.IntN(200) {
			c.put(from + fmt.Sprint(c.random.IntN(1000)))
		}
	default: // a range goes, from the first key of a page or from the middle of one
		n := c.random.IntN(400)
		for key := range c.s.Keys.Ascend(c.key()) {
			if n--; n < 0 {
				break
			}
			if c.random.IntN(10) > 0 {
				c.s.Keys.Delete(key)
			}
		}
	}
}

// Ensure that after any writes and deletes Open accepts the file and reads all of it.
func TestFile_WhateverIsWritten(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	path := newPath(t)
	c := &churn{random: rand.New(rand.NewPCG(seed, 0)), s: store.New()}
	if err := c.s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	other := newPath(t)
	for round := range 200 / min(step(), 4) {
		if err := write(c.s, c.write); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err := errors.Join(err, os.WriteFile(other, content, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got, err := openStore(other); err != nil || got != dump(c.s) {
			t.Fatalf("round %d: got index %d, %v", round, got.index, err)
		}
	}
	if err := c.s.Close(); err != nil {
		t.Fatal(err)
	}
}
