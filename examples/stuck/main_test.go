package main

import (
	"bytes"
	"testing"
)

// Ensure that the deadlock is refused, that nothing hangs, and what the program prints.
func TestStuck(t *testing.T) {
	const want = `orders is held by mail, and awaited by web
mail is refused the lock of users, for it would be a deadlock:
  mail holds orders and wants users
  web holds users and wants orders
users is held by web, and awaited by report
web has users and orders, ahead of report, which waits for users
mail has users, for web held it too long: true
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}
