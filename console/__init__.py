"""The console of tenants: pages and their forms, navigation, search and first steps.

Imports from every app; only the URL configuration imports from it.
"""
