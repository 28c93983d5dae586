// Package site is for apps that ask models their users own.
//
// A site keeps jobs until one of its user's devices claims, runs and answers
// them. What it keeps is sealed to its own key before it is stored. [Store] is
// what it must not forget; site/sqlite keeps it in a file, and site/storetest is
// the suite that every engine passes.
//
// Today the package holds the store's contract. The part that apps call comes
// with the direct lane.
package site
