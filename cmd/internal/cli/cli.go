// Package cli is what every command needs: App, with the streams and the common flags;
// the flags of what speaks to a relay and of what opens a database; help, usage and the
// environment; errors with their sentences and exit codes; the version of the program.
//
// A command is made by a function of an App and listed as a Command. The core hands its
// commands to App.Assemble; a ring registers its own, and this package does not know
// which rings there are. A package of commands declares
//
//	type app struct{ *cli.App }
//
// and has its commands as methods. No command stands here.
package cli
