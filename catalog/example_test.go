package catalog_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// must returns the value, for the examples have no errors but those that they show.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// What a transaction writes to the catalog, it reads too.
func ExampleTxn() {
	db := must(lockd.New(nil))
	defer db.Close()

	err := db.Update(func(tx *lockd.Txn) error {
		nodes := tx.Catalog()
		err := nodes.PutNode(catalog.Node{Name: "web-1", Address: "10.0.0.1"})
		node, found := nodes.Node("WEB-1")
		fmt.Println(node.Name, node.Address, found)
		return err
	})
	fmt.Println(err)
	// Output:
	// web-1 10.0.0.1 true
	// <nil>
}

// The published state: a database begins with the node of its process.
func ExampleSnapshot() {
	db := must(lockd.New(&lockd.Options{Node: "host-1"}))
	defer db.Close()

	for node := range db.Snapshot().Catalog().Nodes() {
		fmt.Println(node.Name)
	}
	// Output: host-1
}

// A session ends with a check of its node, and leaves what it held to the next.
func ExampleCheck() {
	db := must(lockd.New(nil))
	defer db.Close()
	report := func(status catalog.Status) error {
		return db.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: db.Node(), Name: "disk", Status: status,
			})
		})
	}
	fmt.Println("passes:", report(catalog.Passing))
	session := must(db.NewSession(&lockd.SessionOptions{Checks: []string{"disk"}}))
	fmt.Println("fails:", report(catalog.Critical))
	<-session.Done()
	fmt.Println(errors.Is(session.Err(), catalog.ErrCheckCritical))
	// Output:
	// passes: <nil>
	// fails: <nil>
	// true
}

// The states of a check.
func ExampleStatus() {
	fmt.Println(catalog.Check{}.Status, catalog.Warning, catalog.Passing)
	// Output: critical warning passing
}

// A node of the catalog, with a service that it offers.
func ExampleNode() {
	db := must(lockd.New(nil))
	defer db.Close()

	err := db.Update(func(tx *lockd.Txn) error {
		return tx.Catalog().PutNode(catalog.Node{Name: "db1", Address: "10.0.0.7"})
	})
	session := must(db.NewSession(&lockd.SessionOptions{Node: "db1"}))
	err = errors.Join(err, db.Update(func(tx *lockd.Txn) error {
		_, err := tx.Catalog().DeleteNode("db1")
		return err
	}))
	<-session.Done()
	fmt.Println(err, errors.Is(session.Err(), catalog.ErrNodeGone))
	// Output: <nil> true
}

func ExampleService() {
	db := must(lockd.New(nil))
	defer db.Close()

	err := db.Update(func(tx *lockd.Txn) error {
		return tx.Catalog().PutService(catalog.Service{Node: db.Node(), Name: "mysql", Port: 3306})
	})
	_ = db.Update(func(tx *lockd.Txn) error {
		service, found := tx.Catalog().Service(db.Node(), "mysql")
		fmt.Println(service.Name, service.Port, found, err)
		return nil
	})
	// Output: mysql 3306 true <nil>
}

// A record that dies with a session.
func ExampleAttachment() {
	db := must(lockd.New(nil))
	defer db.Close()
	session := must(db.NewSession(nil))
	look := func(tx *lockd.Txn) error {
		attachment, found := tx.Catalog().Attachment("cursor/1")
		fmt.Printf("%q %v\n", attachment.Value, found)
		return nil
	}

	err := db.Update(func(tx *lockd.Txn) error {
		return tx.Catalog().Attach(session.ID(), "cursor/1", []byte("line 7"))
	})
	err = errors.Join(err, db.Update(look), session.Close(), db.Update(look))
	fmt.Println(err)
	// Output:
	// "line 7" true
	// "" false
	// <nil>
}

// Each change of the catalog is an event.
func ExampleChange() {
	db := must(lockd.New(nil))
	defer db.Close()
	before := db.Snapshot().Index()
	err := db.Update(func(tx *lockd.Txn) error {
		return tx.Catalog().PutNode(catalog.Node{Name: "web-1"})
	})
	fmt.Println(err)

	for event := range db.Watch(context.Background(), lockd.CatalogScope(), before) {
		fmt.Println(event.Catalog.Kind, event.Catalog.Node)
		break
	}
	// Output:
	// <nil>
	// node put web-1
}

// What changed, in words.
func ExampleChangeKind() {
	fmt.Println(catalog.ServiceDeleted, "or", catalog.AttachmentPut)
	// Output: service deleted or attachment put
}
